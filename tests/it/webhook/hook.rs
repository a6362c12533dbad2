//! A consumer of the webhook that answers as a test wants, plain or behind TLS, and remembers what came.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::AbortOnDropHandle;

use crate::serve::PATIENCE;

/// What came.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    pub(super) at: Instant,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Delivery {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    pub(super) fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub(super) fn events(&self) -> Vec<Value> {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The signature that a key of at most 64 bytes gives, computed step by step as RFC 2104 says.
    pub(super) fn signature(&self, key: &[u8]) -> String {
        let timestamp = self.header("webhook-timestamp");
        let content = format!("{}.{timestamp}.{}", self.id(), self.body);
        let pad = |with: u8| {
            let mut block = [with; 64];
            block.iter_mut().zip(key).for_each(|(byte, k)| *byte ^= k);
            block
        };
        let inner = Sha256::new()
            .chain_update(pad(0x36))
            .chain_update(content)
            .finalize();
        let outer = Sha256::new()
            .chain_update(pad(0x5c))
            .chain_update(inner)
            .finalize();
        format!("v1,{}", STANDARD.encode(outer))
    }
}

/// How one delivery is answered.
pub(super) enum Reply {
    Status(u16),
    /// 503, and not again for so many seconds.
    After(u64),
    /// 307 to another address.
    Redirect(String),
    /// 200 with a body that has no end.
    Endless,
    /// Not at all.
    Never,
    /// 204, once somebody says so.
    Gate(watch::Receiver<bool>),
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    /// Bytes of endless bodies that were taken from them.
    endless_bytes: AtomicUsize,
    endless_cut: AtomicBool,
    bad_handshakes: AtomicUsize,
}

/// A running consumer; it ends when it is dropped.
pub(super) struct Hook {
    pub(super) url: String,
    shared: Arc<Shared>,
    came: watch::Receiver<Vec<Delivery>>,
    _server: AbortOnDropHandle<()>,
}

type Inner = Arc<(Arc<Shared>, watch::Sender<Vec<Delivery>>)>;

impl Hook {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        Self::on(listener, url, Arc::default())
    }

    /// Behind TLS, with a certificate for `localhost`. Gives that of its authority too, in PEM.
    pub(super) async fn start_tls() -> (Self, String) {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(authority, key).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &authority).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let shared = Arc::<Shared>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let listener = TlsListener {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            shared: Arc::clone(&shared),
        };
        let hook = Self::on(listener, format!("https://localhost:{port}/"), shared);
        (hook, authority.pem())
    }

    fn on<L>(listener: L, url: String, shared: Arc<Shared>) -> Self
    where
        L: Listener<Addr = SocketAddr>,
    {
        let (sender, came) = watch::channel(Vec::new());
        let router = Router::new()
            .fallback(receive)
            .with_state(Arc::new((Arc::clone(&shared), sender)));
        let server = async move { axum::serve(listener, router).await.unwrap() };
        Self {
            url,
            shared,
            came,
            _server: AbortOnDropHandle::new(tokio::spawn(server)),
        }
    }

    /// The next deliveries are answered so; those behind them with 204.
    pub(super) fn answers(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.replies.lock().unwrap().extend(replies);
    }

    /// What came so far.
    pub(super) fn came(&self) -> Vec<Delivery> {
        self.came.borrow().clone()
    }

    /// Waits until so many deliveries came.
    pub(super) async fn comes(&self, count: usize) -> Vec<Delivery> {
        let mut came = self.came.clone();
        let enough = came.wait_for(|came| came.len() >= count);
        match tokio::time::timeout(PATIENCE, enough).await {
            Ok(Ok(came)) => came.clone(),
            _ => panic!("{count} deliveries do not come: {:#?}", self.came()),
        }
    }

    /// Bytes of endless bodies that were taken, if their connections are closed by now.
    pub(super) fn endless_cut(&self) -> Option<usize> {
        let bytes = self.shared.endless_bytes.load(Ordering::SeqCst);
        self.shared
            .endless_cut
            .load(Ordering::SeqCst)
            .then_some(bytes)
    }

    /// Connections on which TLS did not come about.
    pub(super) fn bad_handshakes(&self) -> usize {
        self.shared.bad_handshakes.load(Ordering::SeqCst)
    }
}

async fn receive(State(inner): State<Inner>, headers: HeaderMap, body: String) -> Response {
    let (shared, came) = &*inner;
    let delivery = Delivery {
        at: Instant::now(),
        headers,
        body,
    };
    came.send_modify(|came| came.push(delivery));
    let reply = shared.replies.lock().unwrap().pop_front();
    let status = |code: u16| axum::http::StatusCode::from_u16(code).unwrap();
    match reply.unwrap_or(Reply::Status(204)) {
        Reply::Status(code) => status(code).into_response(),
        Reply::After(seconds) => {
            (status(503), [("retry-after", seconds.to_string())]).into_response()
        }
        Reply::Redirect(to) => (status(307), [("location", to)]).into_response(),
        Reply::Endless => endless(Arc::clone(shared)).into_response(),
        Reply::Never => std::future::pending().await,
        Reply::Gate(mut gate) => {
            gate.wait_for(|open| *open).await.unwrap();
            status(204).into_response()
        }
    }
}

/// Notes when a body is dropped.
struct Cut(Arc<Shared>);

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.endless_cut.store(true, Ordering::SeqCst);
    }
}

fn endless(shared: Arc<Shared>) -> Body {
    let cut = Cut(shared);
    let chunk = move || {
        let text = "x".repeat(4096);
        cut.0.endless_bytes.fetch_add(text.len(), Ordering::SeqCst);
        Ok::<_, io::Error>(text)
    };
    Body::from_stream(futures_util::stream::repeat_with(chunk))
}

struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            match self.acceptor.accept(stream).await {
                Ok(stream) => return (stream, address),
                Err(_) => self.shared.bad_handshakes.fetch_add(1, Ordering::SeqCst),
            };
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
