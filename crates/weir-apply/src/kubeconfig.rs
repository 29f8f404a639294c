//! Clusters reached by a kubeconfig that somebody put into an object: it may use less than one on disk.

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::kubernetes::KubernetesCluster;

/// What such a kubeconfig may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Commands that give credentials.
    pub commands: bool,
    /// Connections without verification of the server.
    pub unverified: bool,
}

/// A kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It does not parse, or names what it does not have.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// No client can be made of it.
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// The cluster of a kubeconfig; nothing is sent yet.
///
/// # Errors
/// What is wrong with the text.
pub async fn connect(text: &str, allowed: Allowed) -> Result<KubernetesCluster, ConnectError> {
    let mut kubeconfig = Kubeconfig::from_yaml(text)?;
    sanitise(&mut kubeconfig, allowed);
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(KubernetesCluster::new(kube::Client::try_from(config)?))
}

/// Drops what a kubeconfig from a Secret may not use: files of this machine, commands, other
/// identities, and connections that are not verified.
fn sanitise(kubeconfig: &mut Kubeconfig, allowed: Allowed) {
    for named in &mut kubeconfig.clusters {
        if let Some(cluster) = &mut named.cluster {
            cluster.certificate_authority = None;
            if !allowed.unverified {
                cluster.insecure_skip_tls_verify = None;
            }
        }
    }
    for named in &mut kubeconfig.auth_infos {
        if let Some(user) = &mut named.auth_info {
            user.client_certificate = None;
            user.client_key = None;
            user.token_file = None;
            user.auth_provider = None;
            user.impersonate = None;
            user.impersonate_groups = None;
            if !allowed.commands {
                user.exec = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_allowed_stays() {
        let text = "
clusters: [{name: c, cluster: {server: https://x, certificate-authority: /ca, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: t, tokenFile: /t, client-key: /k, as: other, exec: {command: c}}}]
";
        let sanitised = |allowed| {
            let mut kubeconfig = Kubeconfig::from_yaml(text).unwrap();
            sanitise(&mut kubeconfig, allowed);
            let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
            let user = kubeconfig.auth_infos[0].auth_info.clone().unwrap();
            assert!(cluster.certificate_authority.is_none() && user.token.is_some());
            assert!(user.token_file.is_none() && user.client_key.is_none() && user.impersonate.is_none());
            (cluster.insecure_skip_tls_verify.is_some(), user.exec.is_some())
        };
        assert_eq!(sanitised(Allowed::default()), (false, false));
        assert_eq!(sanitised(Allowed { commands: true, unverified: true }), (true, true));
    }
}
