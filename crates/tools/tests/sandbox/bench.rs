//! A workspace with a sandbox around its commands, and things outside for them to go for.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay_tools::sandbox::{Sandbox, SandboxMode, SandboxReport, Way};
use mainstay_tools::{Bash, Supervisor};

use crate::place::{Place, children_of, text};

pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) place: Place,
    pub(crate) outside: PathBuf,
    pub(crate) supervisor: Arc<Supervisor>,
    before: Vec<u32>,
    listeners: (TcpListener, UdpSocket, UnixListener, UnixListener),
    abstract_name: String,
}

impl Bench {
    pub(crate) fn new(way: Way, mode: SandboxMode) -> Self {
        Bench::with(|root| Sandbox { ways: vec![way], ..Sandbox::new(mode, root.to_owned()) })
    }

    /// A bench whose sandbox is made when its workspace is there.
    pub(crate) fn with(sandbox: impl FnOnce(&Path) -> Sandbox) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (root, outside) = (top.join("workspace"), top.join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir_all(outside.join("folder")).unwrap();
        fs::write(outside.join("victim"), "kept").unwrap();
        fs::set_permissions(outside.join("victim"), PermissionsExt::from_mode(0o644)).unwrap();
        let abstract_name = format!("mainstay-test-{}", top.display()).replace('/', "-");
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let listeners = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UnixListener::bind_addr(&address).unwrap(),
            UnixListener::bind(top.join("socket")).unwrap(),
        );
        listeners.0.set_nonblocking(true).unwrap();
        listeners.1.set_nonblocking(true).unwrap();
        let before = children_of(std::process::id());
        let supervisor = Arc::new(Supervisor::new(Vec::new()).within(Some(sandbox(&root))));
        let mut place = Place::of(root);
        place.bash = Bash::new(supervisor.clone());
        Bench { dir, place, outside, supervisor, before, listeners, abstract_name }
    }

    pub(crate) fn top(&self) -> &Path {
        self.outside.parent().unwrap()
    }

    pub(crate) async fn report(&self) -> SandboxReport {
        self.supervisor.report().await.unwrap().unwrap()
    }

    /// Runs a command that has the names of things to go for as variables.
    pub(crate) async fn run(&self, command: &str) -> String {
        let supervisor = children_of(std::process::id()).into_iter().find(|pid| !self.before.contains(pid));
        let program = std::env::current_exe().unwrap();
        let names = [
            ("OUT", self.outside.display().to_string()),
            ("TOP", self.top().display().to_string()),
            ("ATTACK", format!("{} --attack", program.display())),
            ("SUID", std::env::var("SUID").unwrap_or_default()),
            ("AGENT", std::process::id().to_string()),
            ("SUPERVISOR", supervisor.unwrap_or_default().to_string()),
            ("TCP", self.listeners.0.local_addr().unwrap().to_string()),
            ("UDP", self.listeners.1.local_addr().unwrap().to_string()),
            ("ABSTRACT", self.abstract_name.clone()),
            ("SOCKET", self.top().join("socket").display().to_string()),
        ];
        let names: String = names.iter().map(|(name, value)| format!("{name}='{value}'; ")).collect();
        text(crate::place::soon(self.place.run(&format!("{names}\n{command}"))).await)
    }

    /// Whether anything of a command's has come to a listener outside.
    pub(crate) fn was_reached(&self) -> bool {
        self.listeners.0.accept().is_ok() || self.listeners.1.recv(&mut [0; 16]).is_ok()
    }

    /// Everything outside: what each place is and holds, its mode and its time.
    pub(crate) fn outside_now(&self) -> BTreeMap<PathBuf, String> {
        tree(&self.outside)
    }
}

/// What lies at and below a place.
pub(crate) fn tree(place: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![place.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let mut text = format!("{:o} {} links, ", metadata.mode(), metadata.nlink());
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if metadata.is_file() {
            text += &format!("{}: {:?}", metadata.mtime(), fs::read_to_string(&path).ok());
        }
        all.insert(path, text);
    }
    all
}
