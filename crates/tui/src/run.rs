//! The loop: keys, the session's side, time and signals go into [`App::update`], and what it asks for is done.
//!
//! Nothing is drawn without something having happened. What is typed is drawn at once; what streams, at most thirty
//! times a second.

use std::io::{self, Stdout};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use crossterm::event::{Event as Input, EventStream};
use futures_util::StreamExt;
use mainstay_agent::session::ids::SessionId;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::{App, Effect, Msg, Opened};
use crate::files;
use crate::highlight::{Code, Highlighter};
use crate::painter::{Colours, Painter};
use crate::store::{Draft, Store};
use crate::terminal::Terminal;
use crate::text::Row;
use crate::view::view;
use crate::worker::{Begin, Host, Job, Outbox, Shared, Worker};

/// How often what streams is drawn.
const FRAME: Duration = Duration::from_millis(33);
/// How long nothing is drawn after the terminal got another size. Some tell of sizes four times a second at most (tmux does),
/// and what is drawn meanwhile for one that is over would leave its traces.
const RESIZING: Duration = Duration::from_millis(300);
/// How long after a key what is written is kept.
const SAVE_AFTER: Duration = Duration::from_millis(250);
/// How long the end waits for the session's side to finish what it does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The exit code after the terminal went away.
const HUNG_UP: u8 = 129;

/// What to begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new session, which begins with the first message.
    New,
    /// The session in this folder.
    Resume(PathBuf),
    /// Whichever the user chooses.
    Choose,
}

/// What the interface is begun with.
pub struct Options {
    /// What to begin with.
    pub start: Start,
    /// Where sessions, earlier messages and drafts lie.
    pub data_home: PathBuf,
    /// The workspace, absolute and resolved.
    pub workspace: PathBuf,
    /// The name of the model that is configured; empty if none is.
    pub model: String,
    /// Which colours are wanted.
    pub colours: Colours,
    /// The command that edits a file, if there is one.
    pub editor: Option<String>,
    /// The program around the interface.
    pub host: Arc<dyn Host>,
}

/// How the interface was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The exit code: 0, or that of the signal or the key that ended it.
    pub code: u8,
    /// The session, by the end of its id; none if nothing was said.
    pub session: Option<String>,
    /// Completed and all items of its plan.
    pub plan: (usize, usize),
}

/// Runs the interface on the terminal that stdin and stdout are, until its user leaves it.
///
/// # Errors
///
/// If the terminal cannot be used, or the operating system gives no thread.
pub fn run(options: Options) -> io::Result<Left> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Runtime::start(options)?.serve().await })
}

/// Tells of the end of the session's side, however that comes.
struct Ending {
    msgs: UnboundedSender<Msg>,
    done: std_mpsc::Sender<()>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Whoever leaves listens to one of them or to none.
        let _ = self.msgs.send(Msg::Gone);
        let _ = self.done.send(());
    }
}

struct Runtime {
    app: App,
    terminal: Terminal,
    painter: Painter<Stdout>,
    keys: Option<EventStream>,
    msgs: UnboundedReceiver<Msg>,
    sender: UnboundedSender<Msg>,
    shared: Shared,
    orders: UnboundedSender<Job>,
    /// Hears of the end of the session's side.
    ended: std_mpsc::Receiver<()>,
    highlighter: Option<Highlighter>,
    store: Store,
    /// The session whose drafts are looked for, by the end of its id.
    session: Option<String>,
    begun: Instant,
    drawn: Instant,
    /// Rows that are to be printed with the next drawing.
    unprinted: Vec<Row>,
    draw_at: Option<Instant>,
    /// Until when nothing is drawn, since the terminal may get yet another size.
    resizes_until: Option<Instant>,
    save_at: Option<Instant>,
    options: Options,
}

impl Runtime {
    fn start(options: Options) -> io::Result<Runtime> {
        let terminal = Terminal::take()?;
        let (sender, msgs) = unbounded_channel();
        let (orders, receiver) = unbounded_channel();
        let shared = Shared {
            msgs: sender.clone(),
            outbox: Outbox::default(),
            cancel: Arc::default(),
            question: Arc::default(),
        };
        let store = Store::new(&options.data_home, format!("{}-{}", std::process::id(), nanoseconds()));
        let size = crossterm::terminal::size().unwrap_or((80, 24));
        let opened = Opened {
            model: options.model.clone(),
            workspace: options.workspace.clone(),
            ..Opened::default()
        };
        let now = Instant::now();
        let mut runtime = Runtime {
            app: App::new(size, opened, Vec::new()),
            terminal,
            painter: Painter::new(io::stdout(), options.colours),
            keys: None,
            msgs,
            sender,
            shared: shared.clone(),
            orders,
            ended: std_mpsc::channel().1,
            highlighter: None,
            store,
            session: None,
            begun: now,
            drawn: now,
            unprinted: Vec::new(),
            draw_at: None,
            resizes_until: None,
            save_at: None,
            options,
        };
        runtime.draw()?;
        runtime.begin(shared, receiver)?;
        Ok(runtime)
    }

    /// Everything that can come after the first picture.
    fn begin(&mut self, shared: Shared, receiver: UnboundedReceiver<Job>) -> io::Result<()> {
        self.app.today = Some(jiff::Timestamp::now());
        self.app.remember_earlier(self.store.earlier());
        self.session = match &self.options.start {
            Start::Resume(dir) => id_of(dir).map(|id| id.short().to_owned()),
            Start::New | Start::Choose => None,
        };
        self.app.session.id.clone_from(&self.session);
        // Who chooses a session gets what was being written in that one.
        if self.options.start != Start::Choose {
            self.adopt()?;
        }
        let (done, ended) = std_mpsc::channel();
        self.ended = ended;
        let ending = Ending { msgs: self.sender.clone(), done };
        let host = self.options.host.clone();
        let begin = match &self.options.start {
            Start::Resume(dir) => Begin::With(dir.clone()),
            Start::New => Begin::New,
            Start::Choose => Begin::Idle,
        };
        if self.options.start == Start::Choose {
            match host.sessions() {
                Ok(sessions) => self.app.choose_session(&sessions),
                Err(why) => self.app.say_failure(&why),
            }
        }
        std::thread::Builder::new().name("session".to_owned()).spawn(move || {
            let _ending = ending;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(Worker::new(host, shared, receiver).serve(begin));
            }
        })?;
        self.look_at_branch();
        self.keys = Some(EventStream::new());
        Ok(())
    }

    /// Brings back what was being written in this session when an interface died.
    fn adopt(&mut self) -> io::Result<()> {
        if let Some(draft) = self.store.adopt(&self.options.workspace, self.session.as_deref()) {
            self.app.restore(draft.editor, &draft.waiting);
            self.save()?;
        }
        Ok(())
    }

    /// Notes which session is open. A draft that is found with another one does not push away what is being written.
    fn look_at_session(&mut self) -> io::Result<()> {
        let open = &self.app.session.id;
        if *open == self.session {
            return Ok(());
        }
        self.session.clone_from(open);
        // What is kept of what is being written belongs to this one from here on.
        self.save_at.get_or_insert(Instant::now() + SAVE_AFTER);
        if self.app.is_writing_nothing() {
            return self.adopt();
        }
        Ok(())
    }

    async fn serve(mut self) -> io::Result<Left> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            let due = [self.draw_at, self.save_at].into_iter().flatten().min();
            let tick = self
                .app
                .ticks()
                .map(|every| (self.drawn + every).max(self.resizes_until.unwrap_or(self.drawn)));
            let msg = tokio::select! {
                biased;
                input = next(&mut self.keys) => self.input(input),
                code = signalled(&mut terminate, &mut hang_up, &mut interrupt) => Some(Msg::Signal(code)),
                Some(msg) = self.msgs.recv() => Some(msg),
                () = sleep_until(due) => None,
                () = sleep_until(tick) => Some(Msg::Tick),
            };
            let done = match msg {
                Some(msg) => self.take(msg),
                None => self.due().map(|()| None),
            };
            match done {
                Ok(None) => {}
                Ok(Some(code)) => return Ok(self.leave(code)),
                // The terminal is gone: the session still ends in order.
                Err(_) => return Ok(self.leave(HUNG_UP)),
            }
        }
    }

    /// What the terminal says, as a message. Its end is that of the program.
    fn input(&mut self, input: Option<io::Result<Input>>) -> Option<Msg> {
        match input {
            Some(Ok(Input::Key(key))) => Some(Msg::Key(key)),
            Some(Ok(Input::Paste(text))) => Some(Msg::Paste(text)),
            // What is drawn next looks at the size itself, since this one may be of a moment ago.
            Some(Ok(Input::Resize(..))) => {
                self.resizes_until = Some(Instant::now() + RESIZING);
                Some(Msg::Tick)
            }
            Some(Ok(Input::FocusGained | Input::FocusLost | Input::Mouse(_))) => None,
            Some(Err(_)) | None => Some(Msg::Signal(HUNG_UP)),
        }
    }

    /// Takes a message in, and all that wait behind it, and draws. The exit code, if that ends the program.
    fn take(&mut self, msg: Msg) -> io::Result<Option<u8>> {
        let mut at_once = false;
        let mut next = Some(msg);
        let mut taken = 0;
        while let Some(msg) = next {
            at_once |= !matches!(msg, Msg::Session(_));
            let is_writing = matches!(msg, Msg::Key(_) | Msg::Paste(_) | Msg::Session(_));
            let effects = self.app.update(msg, self.begun.elapsed());
            for effect in effects {
                if let Some(code) = self.perform(effect)? {
                    return Ok(Some(code));
                }
            }
            self.look_at_session()?;
            if is_writing && self.app.take_is_changed() {
                self.save_at.get_or_insert(Instant::now() + SAVE_AFTER);
            }
            taken += 1;
            next = if taken < 500 { self.msgs.try_recv().ok() } else { None };
        }
        let (drawn, now) = (self.drawn, Instant::now());
        let next = if at_once { now } else { drawn + FRAME };
        self.draw_at = Some(self.draw_at.unwrap_or(next).min(next).max(self.resizes_until.unwrap_or(next)));
        if self.draw_at.is_some_and(|at| at <= now) {
            self.draw()?;
        }
        Ok(None)
    }

    fn due(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.draw_at.is_some_and(|at| at <= now) {
            self.draw()?;
        }
        if self.save_at.is_some_and(|at| at <= now) {
            self.save()?;
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        self.draw_at = None;
        self.drawn = Instant::now();
        self.look_at_size();
        let view = view(&self.app);
        let rows = std::mem::take(&mut self.unprinted);
        if rows.is_empty() {
            self.painter.draw(view)?
        } else {
            self.painter.print(&rows, view)?
        }
        self.painter.title(&self.title())
    }

    /// Takes in another size that nobody told of yet: the signal comes behind it.
    fn look_at_size(&mut self) {
        let Ok((columns @ 1.., rows @ 1..)) = crossterm::terminal::size() else { return };
        // One that is the same again is drawn for anew: what was there before may have been lost between.
        if self.resizes_until.take().is_some() || (columns, rows) != self.app.size {
            self.painter.resized(columns);
            self.tell(Msg::Resize(columns, rows));
        }
    }

    /// Tells something of which only what it has printed matters: a size, or what comes when all is over.
    fn tell(&mut self, msg: Msg) {
        for effect in self.app.update(msg, self.begun.elapsed()) {
            if let Effect::Print(rows) = effect {
                self.unprinted.extend(rows);
            }
        }
    }

    fn title(&self) -> String {
        let place = self.options.workspace.file_name().unwrap_or_default().to_string_lossy();
        match (self.app.asks(), &self.app.work) {
            (true, _) => format!("? mainstay: {place}"),
            (false, Some(_)) => format!("… mainstay: {place}"),
            (false, None) => format!("mainstay: {place}"),
        }
    }

    fn perform(&mut self, effect: Effect) -> io::Result<Option<u8>> {
        match effect {
            Effect::Print(rows) => self.unprinted.extend(rows),
            Effect::Do(order) => {
                // What was sent is kept until the session has it.
                self.save()?;
                let cancel = CancellationToken::new();
                self.shared.cancelled_by(cancel.clone());
                let _ = self.orders.send((order, cancel));
            }
            Effect::Queue(text) => {
                self.save()?;
                self.shared.outbox.put(text);
            }
            Effect::TakeBack => {
                if let Some(text) = self.shared.outbox.take_back() {
                    let _ = self.sender.send(Msg::TakenBack(text));
                }
            }
            Effect::Answer(number, answer) => self.shared.answer(number, answer),
            Effect::Cancel => self.shared.cancel(),
            Effect::Colour(code) => self.colour(code),
            Effect::LoadFiles => self.load_files(),
            Effect::LoadModels => self.load_models(),
            Effect::Edit(text) => self.edit(&text)?,
            Effect::Remember(text) => drop(self.store.remember(&text)),
            Effect::Bell => self.painter.bell()?,
            Effect::Redraw => {
                // What is to be printed goes into the scrollback first.
                self.draw()?;
                self.painter.redraw(self.app.size.1, view(&self.app))?;
            }
            Effect::LookAtBranch => self.look_at_branch(),
            Effect::Suspend => self.suspend()?,
            Effect::Quit(code) => return Ok(Some(code)),
        }
        Ok(None)
    }

    fn colour(&mut self, code: Code) {
        let sender = self.sender.clone();
        let highlighter = self.highlighter.get_or_insert_with(|| {
            let sender = sender.clone();
            Highlighter::start(move |id, rows| drop(sender.send(Msg::Coloured(id, rows))))
        });
        let (id, text) = (code.id, code.text.clone());
        if !highlighter.ask(code) {
            let _ = self.sender.send(Msg::Coloured(id, crate::highlight::plain_code(&text)));
        }
    }

    fn load_files(&self) {
        let (sender, workspace) = (self.sender.clone(), self.options.workspace.clone());
        let look = move || drop(sender.send(Msg::Files(files::list(&workspace))));
        // Without a thread there are no completions.
        let _ = std::thread::Builder::new().name("files".to_owned()).spawn(look);
    }

    fn load_models(&self) {
        let (sender, host) = (self.sender.clone(), self.options.host.clone());
        let workspace = self.app.session.workspace.clone();
        let look = move || drop(sender.send(Msg::Models(host.models(&workspace))));
        if let Err(error) = std::thread::Builder::new().name("models".to_owned()).spawn(look) {
            let _ = self.sender.send(Msg::Models(Err(format!("the models cannot be listed: {error}"))));
        }
    }

    fn look_at_branch(&self) {
        let _ = self.sender.send(Msg::Branch(files::branch(&self.options.workspace)));
    }

    /// Hands the text to the user's editor, and the terminal with it.
    fn edit(&mut self, text: &str) -> io::Result<()> {
        let Some(editor) = self.options.editor.clone() else {
            let why = "no editor is set: $VISUAL or $EDITOR names one".to_owned();
            drop(self.sender.send(Msg::Edited(Err(why))));
            return Ok(());
        };
        self.painter.clear()?;
        // Whoever reads keys must not read those for the editor.
        self.keys = None;
        let edited = self.terminal.lend(|| edited(&editor, text))?;
        self.keys = Some(EventStream::new());
        let _ = self.sender.send(Msg::Edited(edited));
        Ok(())
    }

    /// Stops as any program does on Ctrl-Z; the work of the session stops with it.
    fn suspend(&mut self) -> io::Result<()> {
        self.save()?;
        self.painter.clear()?;
        self.keys = None;
        self.terminal.lend(|| {
            let me = rustix::process::getpid();
            let _ = rustix::process::kill_process(me, rustix::process::Signal::TSTP);
        })?;
        self.keys = Some(EventStream::new());
        Ok(())
    }

    fn save(&mut self) -> io::Result<()> {
        self.save_at = None;
        let (editor, waiting) = self.app.unsent();
        let draft = Draft {
            workspace: self.options.workspace.clone(),
            session: self.session.clone(),
            editor: editor.clone(),
            waiting: waiting.cloned().collect(),
        };
        if let Err(error) = self.store.save(&draft) {
            self.app.warn_once(&format!("what you write is not kept over a crash: {error}"));
        }
        Ok(())
    }

    /// Ends: the turn is cancelled, the session's side finishes, and the terminal is given back.
    fn leave(mut self, code: u8) -> Left {
        let _ = self.save();
        self.shared.cancel();
        let (orders, _) = unbounded_channel();
        self.orders = orders;
        let _ = self.ended.recv_timeout(PATIENCE);
        // What was said at the very end is still to be seen.
        while let Ok(msg) = self.msgs.try_recv() {
            if matches!(msg, Msg::Gone) {
                continue;
            }
            self.tell(msg);
        }
        self.unprinted.extend(self.app.take_committing());
        let _ = self.save();
        let _ = self.draw();
        let _ = self.painter.clear();
        self.store.close();
        let plan = &self.app.session.plan.plan;
        Left { code, session: self.app.session.id.clone(), plan: (plan.completed(), plan.items.len()) }
    }
}

/// The id of the session in a folder.
fn id_of(dir: &Path) -> Option<SessionId> {
    dir.file_name()?.to_str()?.parse().ok()
}

/// The text as the editor leaves it.
fn edited(editor: &str, text: &str) -> Result<String, String> {
    let file = tempfile::Builder::new()
        .prefix("mainstay-")
        .suffix(".md")
        .tempfile()
        .map_err(|error| format!("no file for the editor could be made: {error}"))?;
    std::fs::write(file.path(), text)
        .map_err(|error| format!("the text could not be handed over: {error}"))?;
    let ended = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path())
        .status()
        .map_err(|error| format!("`{editor}` could not be started: {error}"))?;
    if !ended.success() {
        return Err(format!("`{editor}` ended with {ended}; your text is as it was"));
    }
    std::fs::read_to_string(file.path()).map_err(|error| format!("what was edited cannot be read: {error}"))
}

async fn next(keys: &mut Option<EventStream>) -> Option<io::Result<Input>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

async fn signalled(terminate: &mut Signal, hang_up: &mut Signal, interrupt: &mut Signal) -> u8 {
    tokio::select! {
        _ = terminate.recv() => 143,
        _ = hang_up.recv() => HUNG_UP,
        _ = interrupt.recv() => 130,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn nanoseconds() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_thread_that_ends_is_heard_of() {
        let (msgs, mut heard) = unbounded_channel();
        let (done, ended) = std_mpsc::channel();
        let ending = Ending { msgs, done };
        let thread = std::thread::spawn(move || {
            let _ending = ending;
            panic!("as a session might");
        });
        assert!(thread.join().is_err());
        assert!(matches!(heard.try_recv(), Ok(Msg::Gone)));
        assert_eq!(ended.try_recv(), Ok(()));
    }
}
