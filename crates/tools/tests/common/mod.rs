//! A workspace to call the file tools in.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, reason = "shared by several tests")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mainstay_session::log::{Durability, Spill};
use mainstay_session::message::ContentHash;
use mainstay_session::plan::PlanInView;
use mainstay_tools::{CallContext, Edit, Jobs, Read, Tool, ToolError, ToolOutput, Write};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// A workspace, and a session that remembers what results declare as the fold does.
pub struct Workspace {
    _outer: tempfile::TempDir,
    pub root: PathBuf,
    pub outside: PathBuf,
    pub seen: Arc<Mutex<HashMap<PathBuf, ContentHash>>>,
    pub context: CallContext,
}

impl Workspace {
    pub fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        let base = outer.path().canonicalize().unwrap();
        let (root, outside) = (base.join("ws"), base.join("out"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::create_dir(base.join("session")).unwrap();
        let seen = Arc::new(Mutex::new(HashMap::new()));
        let looked_up = seen.clone();
        let context = CallContext {
            workspace: root.clone(),
            readable: Vec::new(),
            plan: PlanInView::default(),
            seen: Arc::new(move |path: &Path| looked_up.lock().unwrap().get(path).cloned()),
            intent: Arc::new(|_| Ok(())),
            jobs: Arc::new(Jobs::new(std::env::temp_dir().join("no-jobs"), 0, Arc::new(|_| ()))),
            spill: Spill::of_session(&base.join("session"), Durability::Relaxed),
            takes_images: true,
            max_result_bytes: 1 << 20,
            on_output: Arc::new(|_| {}),
            cancel: CancellationToken::new(),
        };
        Workspace { _outer: outer, root, outside, seen, context }
    }

    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.join(name)).unwrap()
    }

    pub async fn call(&self, tool: &dyn Tool, arguments: serde_json::Value) -> Result<ToolOutput, ToolError> {
        let result = tool.run(&arguments.to_string(), &self.context).await;
        if let Ok(output) = &result {
            for file in &output.referenced_files {
                if let Some(hash) = &file.hash {
                    self.seen.lock().unwrap().insert(file.path.0.clone(), hash.clone());
                }
            }
        }
        result
    }

    pub async fn read(&self, path: &str) -> Result<ToolOutput, ToolError> {
        self.call(&Read, json!({ "path": path })).await
    }

    pub async fn write(&self, path: &str, content: &str) -> Result<ToolOutput, ToolError> {
        self.call(&Write, json!({ "path": path, "content": content })).await
    }

    pub async fn edit(&self, path: &str, old: &str, new: &str) -> Result<ToolOutput, ToolError> {
        self.call(&Edit, json!({ "path": path, "edits": [{ "old": old, "new": new }] })).await
    }

    /// Reads, then edits.
    pub async fn change(&self, path: &str, old: &str, new: &str) -> Result<ToolOutput, ToolError> {
        self.read(path).await.unwrap();
        self.edit(path, old, new).await
    }
}

pub fn whole(error: ToolError) -> String {
    format!("{}\n{}", error.summary, error.content.unwrap_or_default())
}
