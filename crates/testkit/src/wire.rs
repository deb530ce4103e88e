//! A server on the loopback interface that answers HTTP requests from a queue, with faults on demand.
//!
//! It speaks as much HTTP/1.1 as a model client needs, keeps connections open, records what it was asked, and stops when
//! it is dropped. It never waits for real time but where a reply says so.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::speech::{Speech, Wire};

/// A running server. Dropping it ends it and closes its connections.
#[derive(Debug)]
pub struct WireServer {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    _stop: DropGuard,
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The method.
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// On which connection it came, counted from 0.
    pub connection: usize,
}

impl Received {
    /// The value of a header, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl WireServer {
    /// Starts a server that gives these replies in order, and then only status 500.
    ///
    /// Must be called within a tokio runtime. Fails if no port can be had.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared =
            Arc::new(Mutex::new(Shared { replies: replies.into_iter().collect(), ..Shared::default() }));
        let stop = CancellationToken::new();
        let serving = serve(listener, Arc::clone(&shared), stop.clone());
        tokio::spawn(serving);
        Ok(WireServer { address, shared, _stop: stop.drop_guard() })
    }

    /// The base address with a version, as a configuration names it: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Adds a reply to the end of the queue.
    pub fn push(&self, reply: Reply) {
        lock(&self.shared).replies.push_back(reply);
    }

    /// What has been asked so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared).received.clone()
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        lock(&self.shared).connections
    }
}

/// An address on the loopback interface where nothing listens.
pub fn closed_port() -> io::Result<SocketAddr> {
    std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// One reply and what goes wrong with it.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    pieces: Vec<usize>,
    delay: Duration,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum End {
    InOrder,
    CutAfter(usize),
    StallAfter(usize),
}

impl Reply {
    /// A reply with this status and body, in one piece.
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Reply {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.into(),
            pieces: Vec::new(),
            delay: Duration::ZERO,
            end: End::InOrder,
        }
    }

    /// An event stream.
    pub fn stream(body: impl Into<Vec<u8>>) -> Self {
        Reply::new(200, "text/event-stream", body)
    }

    /// An event stream of Chat Completions whose events hold these JSON texts, ended by `[DONE]`.
    pub fn chat_stream<'a>(events: impl IntoIterator<Item = &'a str>) -> Self {
        let events: String = events.into_iter().map(|event| format!("data: {event}\n\n")).collect();
        Reply::stream(format!("{events}data: [DONE]\n\n"))
    }

    /// What a model says, in a wire format.
    pub fn speech(wire: Wire, speech: &Speech) -> Self {
        Reply::stream(wire.stream(speech))
    }

    /// How many events the body has.
    pub fn events(&self) -> usize {
        event_ends(&self.body).len()
    }

    /// Puts bytes into the body behind this many of its events: an error in a stream that began well, a frame that is
    /// none, a ping.
    pub fn with_event(mut self, behind: usize, event: &str) -> Self {
        let ends = event_ends(&self.body);
        let at = behind.checked_sub(1).map_or(0, |last| ends[last.min(ends.len() - 1)]);
        self.body.splice(at..at, event.bytes());
        self
    }

    /// Sends one of the body's events twice.
    pub fn repeat_event(self, place: usize) -> Self {
        let ends = event_ends(&self.body);
        let begin = place.checked_sub(1).map_or(0, |before| ends[before]);
        let event = String::from_utf8_lossy(&self.body[begin..ends[place]]).into_owned();
        self.with_event(place + 1, &event)
    }

    /// The body's bytes, for a decoder that is fed without a server.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// A JSON document.
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Reply::new(status, "application/json", body)
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the body in pieces of these sizes, each a chunk of its own; what is left goes last.
    pub fn pieces(mut self, sizes: impl IntoIterator<Item = usize>) -> Self {
        self.pieces = sizes.into_iter().filter(|size| *size > 0).collect();
        self
    }

    /// Sends the body in pieces of one size.
    pub fn pieces_of(self, size: usize) -> Self {
        let count = self.body.len() / size.max(1);
        self.pieces(std::iter::repeat_n(size.max(1), count))
    }

    /// Waits before anything is sent.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Closes the connection after this many bytes of the body.
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.end = End::CutAfter(bytes);
        self
    }

    /// Sends this many bytes of the body and then nothing more, until the other side or the server goes.
    pub fn stall_after(mut self, bytes: usize) -> Self {
        self.end = End::StallAfter(bytes);
        self
    }

    fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {} Reply\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("transfer-encoding: chunked\r\n\r\n");
        head
    }

    fn sent_body(&self) -> &[u8] {
        match self.end {
            End::InOrder => &self.body,
            End::CutAfter(bytes) | End::StallAfter(bytes) => &self.body[..bytes.min(self.body.len())],
        }
    }
}

/// Where each event ends, its blank line included.
fn event_ends(body: &[u8]) -> Vec<usize> {
    body.windows(2).enumerate().filter(|(_, two)| two == b"\n\n").map(|(at, _)| at + 2).collect()
}

#[derive(Debug, Default)]
struct Shared {
    replies: VecDeque<Reply>,
    received: Vec<Received>,
    connections: usize,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, shared: Arc<Mutex<Shared>>, stop: CancellationToken) {
    while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
        let connection = {
            let mut shared = lock(&shared);
            shared.connections += 1;
            shared.connections - 1
        };
        let answering = answer_all(stream, connection, Arc::clone(&shared));
        let stop = stop.clone();
        // A connection that breaks is the client's matter: many tests break one on purpose.
        tokio::spawn(async move { stop.run_until_cancelled(answering).await.map(drop) });
    }
}

/// Answers the requests of one connection until either side closes it.
async fn answer_all(stream: TcpStream, connection: usize, shared: Arc<Mutex<Shared>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream, connection).await? {
        let reply = {
            let mut shared = lock(&shared);
            shared.received.push(request);
            shared.replies.pop_front()
        };
        let reply =
            reply.unwrap_or_else(|| Reply::json(500, r#"{"error":{"message":"no reply is queued"}}"#));
        tokio::time::sleep(reply.delay).await;
        send(stream.get_mut(), &reply).await?;
        match reply.end {
            End::InOrder => {}
            End::CutAfter(_) => return Ok(()),
            End::StallAfter(_) => {
                // Ends when the client closes its side.
                stream.read_u8().await?;
            }
        }
    }
    Ok(())
}

async fn send(stream: &mut TcpStream, reply: &Reply) -> io::Result<()> {
    stream.write_all(reply.head().as_bytes()).await?;
    let mut rest = reply.sent_body();
    let mut sizes = reply.pieces.iter().copied();
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(sizes.next().unwrap_or(rest.len()).min(rest.len()));
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        stream.write_all(&chunk).await?;
        rest = later;
    }
    if matches!(reply.end, End::InOrder) {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    stream.flush().await
}

/// Reads the next request; none if the client has closed the connection.
async fn read_request(stream: &mut BufReader<TcpStream>, connection: usize) -> io::Result<Option<Received>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(Received { method, path, headers, body, connection }))
}
