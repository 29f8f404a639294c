//! Addresses that nothing is sent to: link-local ones, and those of services that tell a machine its credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Whether a URL names such an address. Addresses by name are checked when they are resolved, see [`Guarded`].
pub(crate) fn names_forbidden(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => is_forbidden(address.into()),
        Some(Host::Ipv6(address)) => is_forbidden(address.into()),
        Some(Host::Domain(_)) | None => false,
    }
}

/// Whether an address is link-local or of a metadata service, which no webhook is. Loopback addresses are not among them.
pub(crate) fn is_forbidden(address: IpAddr) -> bool {
    /// Metadata services and agents of clouds that are not at link-local addresses: Azure, Alibaba Cloud.
    const CLOUD_SERVICES: [Ipv4Addr; 2] =
        [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)];
    /// The metadata service of machines, and the agent of EKS Pod Identity.
    const AWS_SERVICES: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    ];
    match address {
        IpAddr::V4(address) => address.is_link_local() || CLOUD_SERVICES.contains(&address),
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || AWS_SERVICES.contains(&address)
                || embedded_ipv4(address).is_some_and(|address| is_forbidden(address.into()))
        }
    }
}

/// The IPv4 address that packets to an IPv6 address may end at: mapped, compatible, or translated (RFC 6052, RFC 3056).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0 | 1, 0, 0, 0, high, low] => {
            Some(join(high, low))
        }
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

/// Resolves names, but not to such addresses.
pub(crate) struct Guarded;

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|address| !is_forbidden(address.ip())).collect();
            if allowed.is_empty() {
                let refused = std::io::Error::other("the name has no address that events may be sent to");
                return Err(refused.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_told_from_others() {
        for (address, expected) in [
            ("169.254.169.254", true),
            ("::ffff:169.254.169.254", true),
            ("fe80::1", true),
            ("fd00:ec2::254", true),
            ("fd00:ec2::23", true),
            ("::169.254.169.254", true),
            ("64:ff9b::169.254.169.254", true),
            ("64:ff9b:1::169.254.169.254", true),
            ("2002:a9fe:a9fe::1", true),
            ("168.63.129.16", true),
            ("100.100.100.200", true),
            ("64:ff9b::10.0.0.1", false),
            ("::1", false),
            ("127.0.0.1", false),
            ("10.0.0.1", false),
            ("fd00::1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_forbidden(address.parse().unwrap()), expected, "{address}");
        }
    }
}
