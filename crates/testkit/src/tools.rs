//! Tools for tests: given by a function, or held until the test lets them end.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use mainstay_session::message::ToolSpec;
use mainstay_tools::{CallContext, Tool, ToolError, ToolKind, ToolOutput};
use tokio::sync::{mpsc, oneshot};

const ANY_OBJECT: &str = r#"{"type":"object","properties":{}}"#;

/// A tool that is a function of its arguments and its context.
pub fn by(
    name: &str,
    kind: ToolKind,
    run: impl Fn(&str, &CallContext) -> Result<ToolOutput, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { name: name.to_owned(), schema: ANY_OBJECT.to_owned(), kind, run: Box::new(run) })
}

/// A tool that demands fields, which succeeds with its arguments as the summary.
pub fn demanding(name: &str, required: &[&str]) -> Arc<dyn Tool> {
    let schema = serde_json::json!({"type": "object", "properties": {}, "required": required}).to_string();
    let run = |arguments: &str, _: &CallContext| Ok(ToolOutput::from(arguments.to_owned()));
    Arc::new(FnTool { name: name.to_owned(), schema, kind: ToolKind::Other, run: Box::new(run) })
}

/// A tool that succeeds and says so.
pub fn succeeds(name: &str, kind: ToolKind) -> Arc<dyn Tool> {
    let said = format!("{name} is done");
    by(name, kind, move |_, _| Ok(ToolOutput::from(said.clone())))
}

/// A tool that succeeds with this content.
pub fn says(name: &str, kind: ToolKind, content: &str) -> Arc<dyn Tool> {
    let content = content.to_owned();
    by(name, kind, move |_, _| {
        Ok(ToolOutput { summary: "done".to_owned(), content: Some(content.clone()), ..ToolOutput::default() })
    })
}

/// A tool that succeeds and declares these files.
pub fn declares(name: &str, paths: Vec<PathBuf>) -> Arc<dyn Tool> {
    by(name, ToolKind::Other, move |_, _| {
        let referenced_files = paths.iter().cloned().map(Into::into).collect();
        Ok(ToolOutput { summary: "declared".to_owned(), referenced_files, ..ToolOutput::default() })
    })
}

/// A tool that fails and says so.
pub fn fails(name: &str) -> Arc<dyn Tool> {
    by(name, ToolKind::Other, |_, _| Err(ToolError::from("it failed as always".to_owned())))
}

struct FnTool {
    name: String,
    schema: String,
    kind: ToolKind,
    run: Box<RunFn>,
}

type RunFn = dyn Fn(&str, &CallContext) -> Result<ToolOutput, ToolError> + Send + Sync;

impl Tool for FnTool {
    fn spec(&self) -> ToolSpec {
        spec(&self.name, &self.schema)
    }

    fn kind(&self) -> ToolKind {
        self.kind
    }

    fn run<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { (self.run)(arguments, context) })
    }
}

/// A tool whose every call waits for the test, and the end from which they are released.
pub fn held(name: &str, kind: ToolKind) -> (Arc<dyn Tool>, HeldCalls) {
    let (calls, received) = mpsc::unbounded_channel();
    (Arc::new(HeldTool { name: name.to_owned(), kind, calls }), HeldCalls(received))
}

struct HeldTool {
    name: String,
    kind: ToolKind,
    calls: mpsc::UnboundedSender<HeldCall>,
}

/// The test's end of a held tool.
pub struct HeldCalls(mpsc::UnboundedReceiver<HeldCall>);

/// A call that runs until it is released, or cancelled.
pub struct HeldCall {
    /// Its arguments.
    pub arguments: String,
    release: oneshot::Sender<Result<ToolOutput, ToolError>>,
}

impl HeldCalls {
    /// Waits until a call has begun.
    ///
    /// # Panics
    ///
    /// If the tool is gone.
    pub async fn begun(&mut self) -> HeldCall {
        match self.0.recv().await {
            Some(call) => call,
            None => panic!("the tool is gone, so no call will begin"),
        }
    }

    /// A call that has begun already.
    pub fn try_begun(&mut self) -> Option<HeldCall> {
        self.0.try_recv().ok()
    }
}

impl HeldCall {
    /// Lets the call end.
    pub fn release(self, summary: &str) {
        self.end(Ok(ToolOutput::from(summary.to_owned())));
    }

    /// Lets the call end in any way.
    pub fn end(self, result: Result<ToolOutput, ToolError>) {
        // If the call was cancelled meanwhile, nobody waits for it.
        let _ = self.release.send(result);
    }
}

impl Tool for HeldTool {
    fn spec(&self) -> ToolSpec {
        spec(&self.name, ANY_OBJECT)
    }

    fn kind(&self) -> ToolKind {
        self.kind
    }

    fn run<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let (release, released) = oneshot::channel();
        let _ = self.calls.send(HeldCall { arguments: arguments.to_owned(), release });
        Box::pin(async move {
            tokio::select! {
                biased;
                () = context.cancel.cancelled() => Err(ToolError::from("cancelled while it ran".to_owned())),
                result = released => {
                    result.unwrap_or_else(|_| Err(ToolError::from("the test let go of the call".to_owned())))
                }
            }
        })
    }
}

fn spec(name: &str, schema: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("The test's tool {name}."),
        schema: schema.to_owned(),
    }
}
