//! Charts and values from elsewhere: repositories with an index, registries and web servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use tokio::runtime::Handle;
use url::Url;
use weir_base::redact::Secret;
use weir_base::version::Version;
use weir_helm::chart::Chart;
use weir_source::helm::{self, ChartVersion, Fetched, Index, Table};
use weir_source::oci;

use super::repositories::{self, Login, Repositories, Repository};
use super::{go_error, provenance};
use crate::error::{self, Error};

/// The longest time of one request with its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// Bytes of an index.
const INDEX_BYTES_MAX: u64 = 256 << 20;
/// Bytes of an archive, as it is sent.
const ARCHIVE_BYTES_MAX: u64 = 100 << 20;
/// Bytes of a file of values.
const VALUES_BYTES_MAX: u64 = 64 << 20;

/// Where a chart comes from, if not from this machine.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ChartArguments {
    /// Version or range of versions of the chart; the latest when left out
    #[arg(long = "version", value_name = "RANGE")]
    version: Option<String>,
    /// Take prereleases as well, if no version is given
    #[arg(long)]
    devel: bool,
    /// Address of the repository the chart lies in
    #[arg(long, value_name = "URL")]
    repo: Option<String>,
    /// Send user and password to other hosts as well
    #[arg(long)]
    pass_credentials: bool,
    #[command(flatten)]
    registry: RegistryArguments,
    /// Check the signature of the archive
    #[arg(long)]
    verify: bool,
    /// File with the public keys to check signatures with
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
}

impl ChartArguments {
    /// The wanted version; empty for the latest.
    fn wanted(&self) -> &str {
        match self.version.as_deref().map(str::trim).filter(|version| !version.is_empty()) {
            Some(version) => version,
            None if self.devel => ">0.0.0-0",
            None => "",
        }
    }

    fn login(&self) -> Login {
        Login { pass_credentials: self.pass_credentials, ..self.registry.registry().login }
    }
}

/// A chart that was found.
#[derive(Debug)]
pub(super) enum Located {
    /// A directory or archive of this machine.
    Path(PathBuf),
    /// An archive from elsewhere.
    Fetched(Bytes),
}

impl Located {
    /// Loads the chart.
    pub(super) fn load(&self) -> Result<Chart, Error> {
        match self {
            Self::Path(path) => super::load(path),
            Self::Fetched(archive) => {
                Chart::from_archive(archive).map_err(|error| Error::Helm(error.to_string()))
            }
        }
    }
}

/// Finds a chart: a path, the address of an archive, `oci://…`, or `repository/chart`.
pub(super) fn locate(reference: &str, arguments: &ChartArguments) -> Result<Located, Error> {
    let reference = reference.trim();
    if arguments.repo.is_none() {
        let path = Path::new(reference);
        if path.exists() {
            let path = std::path::absolute(path)
                .map_err(|source| Error::File { path: reference.to_owned(), source })?;
            if arguments.verify {
                provenance::verify_file(&path, arguments.keyring.as_deref())?;
            }
            return Ok(Located::Path(path));
        }
        if path.is_absolute() || reference.starts_with('.') {
            return Err(Error::Helm(format!("path {reference:?} not found")));
        }
    }
    let archive = blocking(fetch(reference, arguments))?;
    Ok(Located::Fetched(archive))
}

async fn fetch(reference: &str, arguments: &ChartArguments) -> Result<Bytes, Error> {
    let wanted = arguments.wanted();
    if let Some(repository) = &arguments.repo {
        let login = arguments.login();
        let address = chart_address(repository, &login, reference, wanted).await?;
        return archive_from(repository, &login, &address, arguments).await;
    }
    if reference.starts_with("oci://") {
        let (archive, signature, name) =
            from_registry(reference, wanted, &arguments.registry.registry(), arguments.verify).await?;
        if arguments.verify {
            let missing = || Error::Helm(format!("failed to fetch provenance \"{reference}.prov\""));
            let signature = signature.ok_or_else(missing)?;
            provenance::verify(&archive, &signature, &name, arguments.keyring.as_deref())?;
        }
        return Ok(archive);
    }
    let known = Repositories::read()?;
    if let Ok(url) = Url::parse(reference)
        && url.has_host()
        && !matches!(url.path(), "" | "/")
    {
        let login = arguments.login();
        return match owner(reference, &known)? {
            Some(owner) if login.pair().is_none() => {
                archive_from(&owner.url, &owner.login, reference, arguments).await
            }
            _ => archive_from(reference, &login, reference, arguments).await,
        };
    }
    let Some((name, chart)) = reference.split_once('/') else {
        return Err(Error::Helm(format!(
            "non-absolute URLs should be in form of repo_name/path_to_chart, got: {reference}"
        )));
    };
    let repository = known.named(name).ok_or_else(|| Error::Helm(format!("repo {name} not found")))?;
    if repository.url.is_empty() {
        return Err(Error::Helm(format!("no URL found for repository {name}")));
    }
    let versions = versions_of(&stored(name)?, chart);
    let found = versions.and_then(|versions| helm::choose(&versions, chart, wanted).cloned()).map_err(|error| {
        Error::Helm(format!(
            "chart {chart:?} matching {wanted} not found in {name} index. (try 'helm repo update'): {error}"
        ))
    })?;
    let address = first_address(&repository.url, &found)
        .ok_or_else(|| Error::Helm(format!("chart {reference:?} has no downloadable URLs")))?;
    archive_from(&repository.url, &repository.login, &address, arguments).await
}

/// The repository in whose index an archive is listed.
fn owner<'r>(address: &str, known: &'r Repositories) -> Result<Option<&'r Repository>, Error> {
    for repository in known.iter() {
        let index = stored(&repository.name)?;
        let lists = |name: &str| {
            let versions = versions_of(&index, name).unwrap_or_default();
            versions
                .iter()
                .flat_map(|version| version.urls.iter().flatten())
                .any(|url| repositories::same_address(address, url))
        };
        // The name of an archive begins with that of its chart.
        let file = address.rsplit('/').next().unwrap_or_default();
        let names = file.match_indices('-').map(|(end, _)| &file[..end]);
        if names.into_iter().any(lists) {
            return Ok(Some(repository));
        }
    }
    Ok(None)
}

/// The index `helm repo update` has stored, as JSON.
pub(super) fn cached(name: &str) -> Result<String, String> {
    let path = repositories::cached_index(name);
    let bytes = fs::read(&path).map_err(|error| go_error("open", &path.display().to_string(), &error))?;
    json(&bytes)
}

fn stored(name: &str) -> Result<String, Error> {
    cached(name)
        .map_err(|cause| Error::Helm(format!("no cached repo found. (try 'helm repo update'): {cause}")))
}

/// An index as JSON, newest versions first.
fn json(bytes: &[u8]) -> Result<String, String> {
    let index = Index::parse(bytes).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    index.write(&mut text).map_err(|error| error.to_string())?;
    String::from_utf8(text).map_err(|error| error.to_string())
}

/// The versions of a chart in an index, newest first.
pub(super) fn versions_of(index: &str, chart: &str) -> Result<Vec<ChartVersion>, helm::LookupError> {
    let table = Table::of(index)?;
    let place = table.place(chart).ok_or(helm::LookupError::NoChart)?;
    ChartVersion::list(index.get(place).unwrap_or_default())
}

/// The absolute address of a chart version, if it has one.
pub(super) fn first_address(repository: &str, version: &ChartVersion) -> Option<String> {
    let reference = version.urls.as_ref()?.first()?;
    if Url::parse(reference).is_ok() {
        return Some(reference.clone());
    }
    let mut base = Url::parse(repository).ok()?;
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", base.path()));
    }
    let mut joined = base.join(reference).ok()?;
    joined.set_query(base.query());
    Some(joined.to_string())
}

/// The address of a chart in a repository that has no name.
pub(super) async fn chart_address(
    repository: &str,
    login: &Login,
    chart: &str,
    wanted: &str,
) -> Result<String, Error> {
    let index = index(repository, login).await.map_err(|error| {
        Error::Helm(format!(
            "looks like {repository:?} is not a valid chart repository or cannot be reached: {error}"
        ))
    })?;
    let version = if wanted.is_empty() { String::new() } else { format!(" version {wanted:?}") };
    let what = format!("chart {chart:?}{version}");
    let versions = versions_of(&index, chart).unwrap_or_default();
    let found = helm::choose(&versions, chart, wanted)
        .map_err(|_| Error::Helm(format!("{what} not found in {repository} repository")))?;
    first_address(repository, found).ok_or_else(|| Error::Helm(format!("{what} has no downloadable URLs")))
}

fn access(login: &Login) -> Result<helm::Access, Error> {
    if login.skip_tls_verify {
        return Err(Error::Flag {
            flag: "insecure-skip-tls-verify",
            value: "certificates of web servers are always checked".to_owned(),
        });
    }
    Ok(helm::Access {
        login: login.pair(),
        pass_credentials: login.pass_credentials,
        certificate_authority: login.authority()?,
        client_certificate: login.certificate()?,
        timeout: REQUEST_TIMEOUT,
    })
}

/// An error with its causes in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    weir_base::error::chain(error)
}

/// The index of a repository as JSON.
pub(super) async fn index(repository: &str, login: &Login) -> Result<String, String> {
    let access = access(login).map_err(|error| error::text(&error))?;
    let repository = helm::Repository::new(repository, access).map_err(|error| chain(&error))?;
    match repository.index(None, INDEX_BYTES_MAX).await.map_err(|error| chain(&error))? {
        Fetched::Index { bytes, .. } => json(&bytes),
        Fetched::Unchanged => Err("the server sends no index".to_owned()),
    }
}

/// An archive from a web server, with the credentials of the repository it belongs to.
pub(super) async fn download(repository: &str, login: &Login, address: &str) -> Result<Bytes, Error> {
    if address.starts_with("oci://") {
        let registry = Registry { login: login.clone(), plain_http: false };
        return from_registry(address, "", &registry, false).await.map(|(archive, ..)| archive);
    }
    let client =
        helm::Repository::new(repository, access(login)?).map_err(|error| Error::Helm(chain(&error)))?;
    client.chart(address, ARCHIVE_BYTES_MAX).await.map_err(|error| Error::Helm(chain(&error)))
}

async fn archive_from(
    repository: &str,
    login: &Login,
    address: &str,
    arguments: &ChartArguments,
) -> Result<Bytes, Error> {
    let archive = download(repository, login, address).await?;
    if arguments.verify {
        let place = format!("{address}.prov");
        let signature = download(repository, login, &place)
            .await
            .map_err(|_| Error::Helm(format!("failed to fetch provenance {place:?}")))?;
        let name = address.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        provenance::verify(&archive, &signature, name, arguments.keyring.as_deref())?;
    }
    Ok(archive)
}

/// How to log in to a repository or registry.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct RegistryArguments {
    /// User to log in with
    #[arg(long, value_name = "NAME")]
    username: Option<String>,
    /// Password to log in with
    #[arg(long, value_name = "TEXT")]
    password: Option<String>,
    /// File with certificates of authorities to trust
    #[arg(long, value_name = "FILE")]
    ca_file: Option<String>,
    /// File with a client certificate
    #[arg(long, value_name = "FILE")]
    cert_file: Option<String>,
    /// File with the key of the client certificate
    #[arg(long, value_name = "FILE")]
    key_file: Option<String>,
    /// Do not check the certificate of a registry
    #[arg(long)]
    insecure_skip_tls_verify: bool,
    /// Speak plain HTTP with a registry
    #[arg(long)]
    plain_http: bool,
}

impl RegistryArguments {
    /// How to reach registries.
    pub(super) fn registry(&self) -> Registry {
        let text = |option: &Option<String>| option.clone().unwrap_or_default();
        let login = Login {
            username: text(&self.username),
            password: self.password.clone().map(Secret::new),
            pass_credentials: false,
            certificate_file: text(&self.cert_file),
            key_file: text(&self.key_file),
            authority_file: text(&self.ca_file),
            skip_tls_verify: self.insecure_skip_tls_verify,
        };
        Registry { login, plain_http: self.plain_http }
    }
}

/// How to reach a registry.
#[derive(Debug, Clone, Default)]
pub(super) struct Registry {
    pub(super) login: Login,
    pub(super) plain_http: bool,
}

impl Registry {
    fn access(&self, host: &str) -> Result<oci::Access, Error> {
        let mut keychain = oci::Keychain::default();
        match self.login.pair() {
            Some((username, password)) => keychain.add_login(host, username, password),
            None => keychain = repositories::keychain()?,
        }
        Ok(oci::Access {
            keychain,
            certificate_authority: self.login.authority()?,
            client_certificate: self.login.certificate()?,
            proxy: None,
            insecure: self.login.skip_tls_verify,
            plain_http: self.plain_http,
        })
    }
}

fn session(repository: oci::Repository, registry: &Registry) -> Result<oci::Session, Error> {
    let access = registry.access(&repository.registry)?;
    oci::Session::new(repository, &access, REQUEST_TIMEOUT).map_err(|error| Error::Helm(chain(&error)))
}

/// The versions of a chart in a registry, in the order of the tags, `+` where tags have `_`.
pub(super) async fn tags(repository: &str, registry: &Registry) -> Result<Vec<String>, Error> {
    let repository = oci::Repository::parse(repository).map_err(|error| Error::Helm(error.to_string()))?;
    let tags = session(repository, registry)?.tags().await.map_err(|error| Error::Helm(chain(&error)))?;
    let mut versions: Vec<(Version, String)> = tags
        .into_iter()
        .map(|tag| tag.replace('_', "+"))
        .filter_map(|tag| Some((Version::parse_complete(&tag).ok()?, tag)))
        .collect();
    versions.sort_by(|left, right| right.0.cmp(&left.0));
    Ok(versions.into_iter().map(|(_, tag)| tag).collect())
}

/// The media type of signatures beside charts in registries.
const PROVENANCE_CONTENT: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";

/// The archive of a chart in a registry, its signature if wanted and there, and the name of its file.
pub(super) async fn from_registry(
    reference: &str,
    wanted: &str,
    registry: &Registry,
    signature: bool,
) -> Result<(Bytes, Option<Bytes>, String), Error> {
    let fail = |error: &dyn std::fmt::Display| Error::Helm(error.to_string());
    let (place, digest) = match reference.split_once('@') {
        Some((place, digest)) => (place, Some(digest)),
        None => (reference, None),
    };
    let (place, tag) = match place.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => (before, Some(tag)),
        _ => (place, None),
    };
    if let Some(tag) = tag.filter(|tag| !wanted.is_empty() && tag.replace('_', "+") != wanted) {
        return Err(Error::Helm(format!("chart reference and version mismatch: {wanted} is not {tag}")));
    }
    let repository = oci::Repository::parse(place).map_err(|error| fail(&error))?;
    let name = repository.name.rsplit('/').next().unwrap_or_default().to_owned();
    let session = session(repository, registry)?;
    let oci_fail = |error: oci::OciError| Error::Helm(chain(&error));
    let tag = match (digest, tag) {
        (Some(_), tag) => tag.unwrap_or_default().to_owned(),
        (None, Some(tag)) => tag.to_owned(),
        (None, None) if Version::parse(wanted).is_ok() => wanted.replace('+', "_"),
        (None, None) => {
            let tags = session.tags().await.map_err(oci_fail)?;
            if tags.is_empty() {
                return Err(Error::Helm(format!(
                    "unable to locate any tags in provided repository: {reference}"
                )));
            }
            helm::choose_tag(&tags, wanted).map_err(|error| fail(&error))?.replace('+', "_")
        }
    };
    let digest = match digest {
        Some(digest) => digest.to_owned(),
        None => session.digest_of(&tag).await.map_err(oci_fail)?,
    };
    let image = session.image(&digest).await.map_err(oci_fail)?;
    let layer = helm::chart_layer(&image).map_err(|problem| fail(&problem))?;
    let archive = session.blob(layer, ARCHIVE_BYTES_MAX).await.map_err(oci_fail)?;
    let signed = image.layers.iter().find(|layer| signature && layer.media_type == PROVENANCE_CONTENT);
    let signature = match signed {
        Some(layer) => Some(session.blob(layer, VALUES_BYTES_MAX).await.map_err(oci_fail)?),
        None => None,
    };
    Ok((archive, signature, format!("{name}-{}.tgz", tag.replace('_', "+"))))
}

/// A file of values from a web server or a registry.
pub(super) fn values(address: &str) -> Result<Vec<u8>, String> {
    let read = async {
        if address.starts_with("oci://") {
            let registry = Registry::default();
            return from_registry(address, "", &registry, false).await.map(|(bytes, ..)| bytes.to_vec());
        }
        let client = helm::Repository::new(address, access(&Login::default())?)
            .map_err(|error| Error::Helm(chain(&error)))?;
        let bytes = client.chart(address, VALUES_BYTES_MAX).await;
        bytes.map(|bytes| bytes.to_vec()).map_err(|error| Error::Helm(chain(&error)))
    };
    blocking(read).map_err(|error| error::text(&error))
}

/// Runs requests to their end. The commands of Helm have nothing else to do meanwhile.
pub(super) fn blocking<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_an_index() {
        let version =
            |url: &str| ChartVersion { urls: Some(vec![url.to_owned()]), ..ChartVersion::default() };
        for (repository, url, expected) in [
            ("https://example.com/charts", "a-1.tgz", "https://example.com/charts/a-1.tgz"),
            ("https://example.com/charts/?k=v", "x/a-1.tgz", "https://example.com/charts/x/a-1.tgz?k=v"),
            ("https://example.com/charts", "/a-1.tgz", "https://example.com/a-1.tgz"),
            ("https://example.com/charts", "oci://example.com/a:1", "oci://example.com/a:1"),
        ] {
            assert_eq!(first_address(repository, &version(url)).as_deref(), Some(expected));
        }
        assert_eq!(first_address("https://example.com", &ChartVersion::default()), None);
    }

    #[test]
    fn the_wanted_version() {
        let given = |version: Option<&str>, devel| {
            let arguments =
                ChartArguments { version: version.map(str::to_owned), devel, ..Default::default() };
            arguments.wanted().to_owned()
        };
        assert_eq!(given(None, false), "");
        assert_eq!(given(None, true), ">0.0.0-0");
        assert_eq!(given(Some(" 1.x "), true), "1.x");
    }
}
