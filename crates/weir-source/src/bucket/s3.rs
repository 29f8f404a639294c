//! S3 and what speaks its protocol.

use std::fmt;
use std::sync::Arc;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use url::Url;
use weir_base::clock::Clock;
use weir_cloud::aws::{AwsCredentials, EMPTY_DIGEST, Scope, Unsigned, sign};

use super::http::{Answer, child_text, encode_path, exchange, query, xml, xml_error};
use super::{Access, BucketError, Fetched, Listed, OBJECTS_MAX};

const REGION_DEFAULT: &str = "us-east-1";
/// The largest page of a listing; a thousand objects with long keys have some 2 MB.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// Which bucket, and who asks.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// Host and port.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The region; found out when it is not given.
    pub region: Option<String>,
    /// Plain HTTP instead of TLS.
    pub insecure: bool,
    /// The key requests are signed with; anonymous without.
    pub credentials: Option<AwsCredentials>,
}

/// A bucket of S3.
pub struct S3 {
    client: reqwest::Client,
    options: S3Options,
    host: String,
    region: Mutex<String>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for S3 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "S3({}/{})", self.host, self.options.bucket)
    }
}

impl S3 {
    /// Prepares requests; nothing is sent yet.
    ///
    /// # Errors
    /// The endpoint is not a host with an optional port, or a certificate or the proxy cannot be used.
    pub fn new(options: S3Options, access: &Access, clock: Arc<dyn Clock>) -> Result<Self, BucketError> {
        let invalid = |why| BucketError::Endpoint { endpoint: options.endpoint.clone(), why };
        let host = options.endpoint.trim_end_matches('/').to_owned();
        if host.is_empty() || host.contains(['/', '@', '?', '#']) {
            return Err(invalid("it must be a host with an optional port, without scheme and path"));
        }
        Url::parse(&format!("http://{host}/")).map_err(|_| invalid("it is not a host"))?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if options.bucket.len() < 3 || !options.bucket.bytes().all(is_name) {
            return Err(BucketError::Answer {
                url: options.bucket.clone(),
                what: "not the name of a bucket",
            });
        }
        let region = options
            .region
            .clone()
            .filter(|region| !region.is_empty())
            .or_else(|| region_of(&host).map(str::to_owned))
            .unwrap_or_else(|| REGION_DEFAULT.to_owned());
        let client = super::http::client(access)?;
        Ok(Self { client, options, host, region: Mutex::new(region), clock })
    }

    fn url(&self, region: &str, key: &str, query: &str) -> Result<Url, BucketError> {
        let S3Options { bucket, insecure, .. } = &self.options;
        let scheme = if *insecure { "http" } else { "https" };
        let host = match self.host.as_str() {
            "s3.amazonaws.com" => format!("s3.{region}.amazonaws.com"),
            host => host.to_owned(),
        };
        let key = encode_path(key);
        let mut text = if is_virtual(&host, bucket, *insecure) {
            format!("{scheme}://{bucket}.{host}/{key}")
        } else {
            format!("{scheme}://{host}/{bucket}/{key}")
        };
        if !query.is_empty() {
            text.push('?');
            text.push_str(query);
        }
        Url::parse(&text).map_err(|_| BucketError::Endpoint {
            endpoint: self.options.endpoint.clone(),
            why: "it is not a host",
        })
    }

    async fn send(
        &self,
        method: &Method,
        key: &str,
        query: &str,
        bytes_max: u64,
    ) -> Result<Answer, BucketError> {
        exchange(&self.client, bytes_max, || {
            let region = self.region.lock().clone();
            let url = self.url(&region, key, query)?;
            let mut request = reqwest::Request::new(method.clone(), url.clone());
            let Some(credentials) = &self.options.credentials else { return Ok(request) };
            let content = [("x-amz-content-sha256", EMPTY_DIGEST)];
            let unsigned =
                Unsigned { method: method.as_str(), url: &url, headers: &content, body_digest: EMPTY_DIGEST };
            let scope = Scope { region: &region, service: "s3" };
            let signed = sign(credentials, &scope, &unsigned, self.clock.now());
            let headers = content.iter().map(|(name, value)| (*name, (*value).to_owned())).chain(signed);
            for (name, value) in headers {
                let value = http::HeaderValue::from_str(&value).map_err(|_| BucketError::Answer {
                    url: super::http::shown(&url),
                    what: "the access key has characters that headers cannot have",
                })?;
                request.headers_mut().insert(name, value);
            }
            Ok(request)
        })
        .await
    }

    pub(super) async fn exists(&self) -> Result<bool, BucketError> {
        let mut answer = self.send(&Method::HEAD, "", "", PAGE_BYTES_MAX).await?;
        if let Some(region) = self.other_region(&answer) {
            *self.region.lock() = region;
            answer = self.send(&Method::HEAD, "", "", PAGE_BYTES_MAX).await?;
        }
        match answer.status {
            status if status.is_success() => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            // An answer to HEAD has no body that could say more.
            StatusCode::FORBIDDEN => {
                Err(answer.refusal(Method::HEAD, "AccessDenied".to_owned(), "Access Denied."))
            }
            _ => Err(answer.refusal(Method::HEAD, String::new(), "")),
        }
    }

    /// The region a refusal points to, when the specification names none.
    fn other_region(&self, answer: &Answer) -> Option<String> {
        if answer.status.is_success() || self.options.region.as_ref().is_some_and(|region| !region.is_empty())
        {
            return None;
        }
        let region = answer.header("x-amz-bucket-region")?;
        let is_name = region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (is_name && !region.is_empty() && *region != *self.region.lock()).then(|| region.to_owned())
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Listed>, BucketError> {
        // The interoperable interface of Google knows the first version alone.
        let is_first_version = is_google(&self.host);
        let mut found: Vec<Listed> = Vec::new();
        let mut next = String::new();
        loop {
            let mut pairs = vec![("encoding-type", "url"), ("prefix", prefix)];
            if is_first_version {
                if !next.is_empty() {
                    pairs.push(("marker", &next));
                }
            } else {
                pairs.push(("list-type", "2"));
                if !next.is_empty() {
                    pairs.push(("continuation-token", &next));
                }
            }
            pairs.sort_unstable();
            let answer = self.send(&Method::GET, "", &query(&pairs), PAGE_BYTES_MAX).await?;
            if !answer.status.is_success() {
                let (code, message) = xml_error(&answer.body);
                return Err(answer.refusal(Method::GET, code, &message));
            }
            let page = page(&answer)?;
            let last = page.objects.last().map(|object| object.key.clone());
            found.extend(page.objects);
            if found.len() > OBJECTS_MAX {
                return Err(BucketError::TooMany(OBJECTS_MAX));
            }
            let token = if is_first_version { last } else { page.token };
            match token {
                Some(token) if page.is_truncated && !token.is_empty() && token != next => next = token,
                _ if page.is_truncated => {
                    return Err(answer.unexpected("the listing does not say how it goes on"));
                }
                _ => return Ok(found),
            }
        }
    }

    pub(super) async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Fetched>, BucketError> {
        let answer = self.send(&Method::GET, key, "", bytes_max).await?;
        if answer.status.is_success() {
            let etag = answer.header("etag").unwrap_or_default().trim_matches('"').to_owned();
            return Ok(Some(Fetched { data: answer.body, etag }));
        }
        let (code, message) = xml_error(&answer.body);
        if answer.status == StatusCode::NOT_FOUND && code != "NoSuchBucket" {
            return Ok(None);
        }
        Err(answer.refusal(Method::GET, code, &message))
    }
}

struct Page {
    objects: Vec<Listed>,
    is_truncated: bool,
    token: Option<String>,
}

fn page(answer: &Answer) -> Result<Page, BucketError> {
    let document = xml(answer.text()?)
        .filter(|document| document.root_element().tag_name().name() == "ListBucketResult")
        .ok_or_else(|| answer.unexpected("the answer is not a listing"))?;
    let root = document.root_element();
    let is_encoded = child_text(root, "EncodingType") == "url";
    let mut objects = Vec::new();
    for node in root.children().filter(|node| node.tag_name().name() == "Contents") {
        let mut key = child_text(node, "Key");
        if is_encoded {
            key = percent_encoding::percent_decode_str(&key.replace('+', " "))
                .decode_utf8()
                .map_err(|_| answer.unexpected("a key is not UTF-8"))?
                .into_owned();
        }
        objects.push(Listed { key, etag: child_text(node, "ETag").trim_matches('"').to_owned() });
    }
    Ok(Page {
        objects,
        is_truncated: child_text(root, "IsTruncated") == "true",
        token: Some(child_text(root, "NextContinuationToken")).filter(|token| !token.is_empty()),
    })
}

fn is_amazon(host: &str) -> bool {
    host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn")
}

fn is_google(host: &str) -> bool {
    host == "storage.googleapis.com"
}

/// Whether the bucket is part of the host name. A name with dots would not fit the certificate.
fn is_virtual(host: &str, bucket: &str, insecure: bool) -> bool {
    let fits = insecure || !bucket.contains('.');
    fits && (is_amazon(host) || is_google(host) || host.ends_with(".aliyuncs.com"))
}

/// The region in a host name of AWS: `s3.<region>.amazonaws.com`, `s3.dualstack.<region>.amazonaws.com`, and the
/// older `s3-<region>.amazonaws.com`.
fn region_of(host: &str) -> Option<&str> {
    let name = host.strip_suffix(".amazonaws.com").or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
    let rest =
        ["s3.dualstack.", "s3-fips.", "s3.", "s3-"].iter().find_map(|prefix| name.strip_prefix(prefix))?;
    (!rest.is_empty() && !rest.contains('.')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use weir_base::clock::SystemClock;

    use super::*;

    fn store(endpoint: &str, bucket: &str, region: Option<&str>) -> Result<S3, BucketError> {
        let options = S3Options {
            endpoint: endpoint.to_owned(),
            bucket: bucket.to_owned(),
            region: region.map(str::to_owned),
            insecure: false,
            credentials: None,
        };
        S3::new(options, &Access::default(), Arc::new(SystemClock))
    }

    #[test]
    fn addresses() {
        #[track_caller]
        fn check(endpoint: &str, bucket: &str, region: Option<&str>, expected: &str) {
            let store = store(endpoint, bucket, region).unwrap();
            let region = store.region.lock().clone();
            assert_eq!(store.url(&region, "a b", "x=1").unwrap().as_str(), expected);
        }
        check("minio:9000", "fleet", None, "https://minio:9000/fleet/a%20b?x=1");
        check("s3.amazonaws.com", "fleet", None, "https://fleet.s3.us-east-1.amazonaws.com/a%20b?x=1");
        check(
            "s3.amazonaws.com",
            "fleet",
            Some("eu-west-1"),
            "https://fleet.s3.eu-west-1.amazonaws.com/a%20b?x=1",
        );
        check(
            "s3.eu-west-1.amazonaws.com",
            "my.fleet",
            None,
            "https://s3.eu-west-1.amazonaws.com/my.fleet/a%20b?x=1",
        );
        check("storage.googleapis.com", "fleet", None, "https://fleet.storage.googleapis.com/a%20b?x=1");
        for endpoint in ["http://minio:9000", "minio/path", "user@minio", ""] {
            assert!(store(endpoint, "fleet", None).is_err(), "{endpoint}");
        }
        assert!(store("minio", "../x", None).is_err());
    }

    #[test]
    fn regions() {
        assert_eq!(region_of("s3.eu-west-1.amazonaws.com"), Some("eu-west-1"));
        assert_eq!(region_of("s3.dualstack.eu-west-1.amazonaws.com"), Some("eu-west-1"));
        assert_eq!(region_of("s3-us-west-2.amazonaws.com"), Some("us-west-2"));
        assert_eq!(region_of("s3.cn-north-1.amazonaws.com.cn"), Some("cn-north-1"));
        assert_eq!(region_of("s3.amazonaws.com"), None);
        assert_eq!(region_of("minio:9000"), None);
    }
}
