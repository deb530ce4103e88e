//! A program with an agent in it, and a tool, an interceptor, an approver and a notification of its own.
//!
//! `cargo run -p mainstay-agent --example embed -- DATA WORKSPACE SCRIPT PROMPT` begins a session in DATA, or goes on with
//! the newest one there. SCRIPT holds the model's answers, see docs/script-model.md.
#![allow(clippy::print_stdout, clippy::print_stderr)]
use mainstay_agent::{model::ScriptModel, session::log, *};
use std::{error::Error, fs, path::Path, sync::Arc};

struct House;
impl Tool for House {
    fn spec(&self) -> ToolSpec {
        let schema = r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
        ToolSpec { name: "words".into(), description: "Counts words.".into(), schema: schema.into() }
    }
    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }
    fn run<'a>(&'a self, call: &'a str, at: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let mut arguments = Arguments::parse(call)?;
            let path = arguments.text("path", &["file"]);
            arguments.finish(r#"{"path": FILE}"#)?;
            let path = at.path_to_read(&path)?;
            let text = fs::read_to_string(&path)?;
            let referenced_files = vec![ReferencedFile::of(path, text.as_bytes())];
            let summary = format!("{} words", text.split_whitespace().count());
            Ok(ToolOutput { summary, referenced_files, ..ToolOutput::default() })
        })
    }
}
impl Interceptor for House {
    fn pending_history_appends(&self, _: &SessionState, step: u64) -> Vec<String> {
        if step == 1 { vec!["Be brief.".into()] } else { Vec::new() }
    }
}
impl Approver for House {
    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, Approval> {
        Box::pin(async { Approval::Once })
    }
}
fn main() -> Result<(), Box<dyn Error>> {
    supervise_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, workspace, script, prompt] = arguments.try_into().map_err(|_| "usage")?;
    let mut setup = Setup::new(&data, workspace, Arc::new(ScriptModel::from_file(Path::new(&script))?))?;
    setup.tools.push(Arc::new(House));
    setup.interceptors = vec![Arc::new(House)];
    setup.approver = Some(Arc::new(House));
    setup.hold_commands(SandboxMode::WorkspaceWrite, BuiltinOptions::default())?;
    setup.on_event = Arc::new(|event| eprintln!("{event:?}"));
    let mut agent = match log::list(Path::new(&data))?.first() {
        Some(session) => Agent::resume(&session.dir, setup)?.0,
        None => Agent::create(setup)?,
    };
    agent.notifier().notify("The program was started.", false)?;
    let report = block_on(agent.run(prompt, &CancellationToken::new()))?;
    println!("{:?} {:?} {}", report.stop_reason, report.text, agent.get_history().messages.len());
    Ok(())
}
