//! Where a broker is, and how to be sure that it is the one.

use std::{fmt, io, net::SocketAddr, path::PathBuf, str::FromStr};

use futures_util::{AsyncRead, AsyncWrite};
use lapin::{
    AsyncTcpStream, Connection, ConnectionProperties,
    tcp::{OwnedIdentity, OwnedTLSConfig},
    uri::{AMQPAuthority, AMQPScheme, AMQPUri},
};

/// A broker's URL that was read: `amqp://user:password@host:5672/vhost`, or `amqps://...` for TLS.
///
/// TLS always checks the broker's certificate: against the machine's own roots, and those of `cacertfile`. The query may
/// hold these of [RabbitMQ's parameters](https://www.rabbitmq.com/docs/uri-query-parameters), beside `heartbeat` and what
/// else the client library reads:
///
/// | parameter | means |
/// |---|---|
/// | `cacertfile` | PEM file with the authority that signed the broker's certificate |
/// | `certfile`, `keyfile` | PEM files with our own certificate and its key, where the broker asks for one |
/// | `server_name_indication` | name that the certificate must have, instead of the URL's host (behind a proxy or a tunnel) |
/// | `verify` | `verify_peer`; anything else is refused |
///
/// Files are read again for each connection, so that a certificate can be renewed while a service runs.
#[derive(Clone)]
pub struct BrokerUrl {
    text: String,
    uri: AMQPUri,
    files: Files,
    server_name: Option<String>,
}

#[derive(Clone, Default)]
struct Files {
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Why a broker's URL can't be used. The URL itself is never in it: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerUrlError {
    /// It is none.
    #[error(
        "the broker's URL is no AMQP URL (not shown: it may hold a password); it must look like \
         amqp://user:password@host:5672/vhost, with %2f for the virtual host /"
    )]
    NotAmqp,
    /// A parameter of its query can't be.
    #[error("{parameter} in the broker's URL {rule}")]
    Parameter {
        /// Which.
        parameter: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// A file that it names can't be used.
    #[error("{parameter} in the broker's URL names {}, and {reason}", path.display())]
    File {
        /// Which.
        parameter: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl FromStr for BrokerUrl {
    type Err = BrokerUrlError;

    /// # Errors
    /// What is wrong with the URL or a file that it names. Nothing is connected.
    fn from_str(url: &str) -> Result<Self, BrokerUrlError> {
        // The parser's own message may repeat the URL, and with it the password. A host in brackets it takes for a missing
        // one, and goes to localhost.
        let authority = url.split(['/', '?', '#']).nth(2).unwrap_or_default();
        let brackets = authority.rsplit('@').next().is_some_and(|host| host.starts_with('['));
        let uri: AMQPUri =
            url.parse().ok().filter(|_| !brackets && !is_ambiguous(url)).ok_or(BrokerUrlError::NotAmqp)?;
        let mut read = Self { text: url.to_owned(), uri, files: Files::default(), server_name: None };
        for (name, value) in query(url) {
            let path = || Some(PathBuf::from(value.clone()));
            match name.as_str() {
                "cacertfile" => read.files.authority = path(),
                "certfile" => read.files.certificate = path(),
                "keyfile" => read.files.key = path(),
                "server_name_indication" => read.server_name = Some(value),
                "verify" if value != "verify_peer" => {
                    let rule = "must be verify_peer: a certificate that is not checked protects nothing; name the authority \
                                that signed it with cacertfile";
                    return Err(BrokerUrlError::Parameter { parameter: "verify", rule });
                }
                _ => {}
            }
        }
        read.check()?;
        Ok(read)
    }
}

/// Whether a URL has an `@` where none can be, because special characters of its password are not percent-encoded: what
/// is read as its host is then a part of the password.
#[must_use]
pub fn is_ambiguous(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = tail.split(['?', '#']).next().unwrap_or_default();
    path.contains('@') || tail.contains('@') && !authority.contains('@')
}

/// Names and values behind the question mark, percent-decoded.
fn query(url: &str) -> Vec<(String, String)> {
    let Some((_, query)) = url.split_once('?') else { return Vec::new() };
    let query = query.split('#').next().unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// What is no escape stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let escape = behind.get(..2).filter(|_| first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match escape.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl BrokerUrl {
    fn check(&self) -> Result<(), BrokerUrlError> {
        let Files { authority, certificate, key } = &self.files;
        let given = [
            ("cacertfile", authority.is_some()),
            ("certfile", certificate.is_some()),
            ("keyfile", key.is_some()),
            ("server_name_indication", self.server_name.is_some()),
        ];
        if self.uri.scheme == AMQPScheme::AMQP
            && let Some((parameter, _)) = given.into_iter().find(|(_, given)| *given)
        {
            let rule = "is for TLS: write amqps:// in front, or take it out";
            return Err(BrokerUrlError::Parameter { parameter, rule });
        }
        if certificate.is_some() != key.is_some() {
            let parameter = if certificate.is_some() { "certfile" } else { "keyfile" };
            return Err(BrokerUrlError::Parameter {
                parameter,
                rule: "needs the other of certfile and keyfile",
            });
        }
        self.tls().map(drop)
    }

    /// What TLS is to be done with, from the files as they are now.
    fn tls(&self) -> Result<OwnedTLSConfig, BrokerUrlError> {
        let Files { authority, certificate, key } = &self.files;
        let authority = pem("cacertfile", "CERTIFICATE", authority)?;
        let certificate = pem("certfile", "CERTIFICATE", certificate)?;
        let key = pem("keyfile", "PRIVATE KEY", key)?;
        let identity = certificate.zip(key);
        Ok(OwnedTLSConfig {
            identity: identity.map(|(pem, key)| OwnedIdentity::PKCS8 { pem: pem.into(), key: key.into() }),
            cert_chain: authority,
        })
    }

    /// Connects; `name` is what the broker lists the connection as. Waits as long as the network lets it: give it a
    /// deadline.
    ///
    /// # Errors
    /// When the broker can't be reached, is not the one, or does not let us in.
    pub async fn connect(&self, name: &str) -> lapin::Result<Connection> {
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let runtime = lapin::runtime::default_runtime()?;
        let this = self.clone();
        let connect = async move |_, runtime| {
            let stream = AsyncTcpStream::connect(&runtime, this.addresses().await?).await?;
            Ok(this.secured(stream).await?)
        };
        Connection::connector(self.uri.clone(), runtime, connect, properties).await
    }

    /// A stream to the broker, through TLS where the URL asks for it, on which nothing was said yet.
    ///
    /// # Errors
    /// When the broker can't be reached, or is not the one.
    pub async fn dial(&self) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
        let runtime = lapin::runtime::default_runtime().map_err(io::Error::other)?;
        self.secured(AsyncTcpStream::connect(&runtime, self.addresses().await?).await?).await
    }

    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((self.host(), self.port())).await?.collect())
    }

    async fn secured<S>(&self, stream: AsyncTcpStream<S>) -> io::Result<AsyncTcpStream<S>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if !self.is_encrypted() {
            return Ok(stream);
        }
        let tls = self.tls().map_err(io::Error::other)?;
        stream.into_tls(self.server_name(), tls.as_ref()).await
    }

    /// As it was given. Secret: it may hold a password.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Host and port, to name the broker by without a secret.
    #[must_use]
    pub fn address(&self) -> String {
        let AMQPAuthority { host, port, .. } = &self.uri.authority;
        format!("{host}:{port}")
    }

    /// Host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.uri.authority.host
    }

    /// Port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.uri.authority.port
    }

    /// Whether it is spoken to through TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    /// The name that the broker's certificate must have.
    #[must_use]
    pub fn server_name(&self) -> &str {
        self.server_name.as_deref().unwrap_or(&self.uri.authority.host)
    }
}

impl fmt::Debug for BrokerUrl {
    /// Without the user and the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerUrl").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// A file that must hold at least one block of `kind`: a library would take one without any for an empty list.
fn pem(
    parameter: &'static str,
    kind: &str,
    path: &Option<PathBuf>,
) -> Result<Option<String>, BrokerUrlError> {
    let Some(path) = path else { return Ok(None) };
    let unusable = |reason: String| BrokerUrlError::File { parameter, path: path.clone(), reason };
    let text =
        std::fs::read_to_string(path).map_err(|error| unusable(format!("it can't be read: {error}")))?;
    let block = |line: &str| line.starts_with("-----BEGIN ") && line.contains(kind);
    if text.lines().any(block) {
        return Ok(Some(text));
    }
    Err(unusable(format!("it holds no {} in PEM form", kind.to_lowercase())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        let error = url.parse::<BrokerUrl>().map(drop).unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(!said.contains("hunter2"), "{said}");
        error.to_string()
    }

    #[test]
    fn nothing_shows_the_password() {
        let url: BrokerUrl = "amqp://me:hunter2@127.0.0.1:5672/%2f".parse().unwrap();
        assert_eq!((url.address(), url.server_name()), ("127.0.0.1:5672".to_owned(), "127.0.0.1"));
        assert!(!format!("{url:?}").contains("hunter2"));
    }

    #[test]
    fn what_can_not_be_is_refused_with_the_rule() {
        for (url, words) in [
            ("postgres://me:hunter2@h", "no AMQP URL"),
            ("amqp://me:hunter2@[::1]:5672/%2f", "no AMQP URL"),
            ("amqp://me:a@hunter2/b@h/%2f", "no AMQP URL"),
            ("amqp://me:1?hunter2@h/%2f", "no AMQP URL"),
            ("amqps://me:hunter2@h?verify=verify_none", "verify_peer"),
            ("amqp://me:hunter2@h?cacertfile=/ca.pem", "amqps://"),
            ("amqps://me:hunter2@h?certfile=/c.pem", "keyfile"),
            ("amqps://me:hunter2@h?cacertfile=/no/such%20ca.pem", "/no/such ca.pem"),
        ] {
            let said = refused(url);
            assert!(said.contains(words), "{url}: {said}");
        }
    }

    #[test]
    fn a_file_without_a_certificate_is_no_authority() {
        let folder = std::env::temp_dir().join(format!("drainer-pem-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("ca.pem");
        std::fs::write(&file, "nothing\n").unwrap();
        let url = format!("amqps://me:hunter2@h?cacertfile={}", file.display());
        assert!(refused(&url).contains("no certificate in PEM form"));
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n").unwrap();
        let read: BrokerUrl = format!("{url}&server_name_indication=mq.example").parse().unwrap();
        assert_eq!((read.host(), read.server_name(), read.is_encrypted()), ("h", "mq.example", true));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(decoded("/a%20b%2Fc"), "/a b/c");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz"), "%zz");
    }
}
