//! How an answer goes back to the model.
//!
//! The items that only the provider understands go back all together, each byte for byte, or not at all: OpenAI refuses
//! a reasoning item "without its required following item", an item "without its required 'reasoning' item", and an id
//! that comes twice. Behind encrypted reasoning the items keep their ids, which name nothing that is stored but tie each to
//! its reasoning, and their order. In every other case messages and calls have no ids, and calls stand last, so that their
//! results follow them directly.

use std::collections::HashSet;

use mainstay_session::request::Block;

use crate::call_ids::CallIds;
use crate::json::{quoted, sendable_name};
use crate::raw::Fields;
use crate::responses::items::{self, Reasoning};

/// The longest id that an item may have.
const LONGEST_ID: usize = 64;

/// The items that an answer becomes. `is_own` says whether the model that is asked made it; `sent` holds the ids of the
/// items that went back before.
pub(super) fn items(
    blocks: &[Block<'_>],
    is_own: bool,
    calls: &mut CallIds,
    sent: &mut HashSet<String>,
) -> Vec<String> {
    let mut pieces = pieces(blocks, is_own, calls);
    while matches!(pieces.last(), Some(Piece::Reasoning { .. })) {
        pieces.pop();
    }
    let ids: Vec<String> = tied(&pieces).filter_map(|(piece, is_tied)| piece.sent_id(is_tied)).collect();
    let is_native = is_whole(&pieces) && ids.iter().all(|id| id.len() <= LONGEST_ID) && are_new(&ids, sent);
    if is_native {
        sent.extend(ids);
    } else {
        pieces.retain(|piece| matches!(piece, Piece::Message { .. } | Piece::Call { .. }));
    }
    if !pieces.iter().any(Piece::binds) {
        pieces.sort_by_key(|piece| matches!(piece, Piece::Call { .. }));
    }
    tied(&pieces).filter_map(|(piece, is_tied)| piece.item(is_tied)).collect()
}

/// An item to be.
enum Piece<'a> {
    /// A message of these texts, and where it was the provider's own, the rest of the item.
    Message { envelope: Option<Fields<'a>>, texts: Vec<&'a str> },
    /// A reasoning item, verbatim.
    Reasoning { raw: &'a str, item: Fields<'a>, kind: Reasoning },
    /// A call, and what else the provider's item had.
    Call { id: String, name: &'a str, arguments: &'a str, rest: Option<Fields<'a>> },
    /// What a tool of the provider did, verbatim.
    Own { raw: &'a str, item: Fields<'a> },
    /// What cannot go back.
    Lost,
}

fn pieces<'a>(blocks: &'a [Block<'_>], is_own: bool, calls: &mut CallIds) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    calls.begin_answer();
    for block in blocks {
        match block {
            Block::Text(text) if text.trim().is_empty() => {}
            Block::Text(text) => match pieces.last_mut() {
                Some(Piece::Message { texts, .. }) => texts.push(text.as_ref()),
                _ => pieces.push(Piece::Message { envelope: None, texts: vec![text.as_ref()] }),
            },
            Block::Call { id, name, arguments, opaque } => pieces.push(Piece::Call {
                id: calls.assign(id),
                name,
                arguments,
                rest: opaque.filter(|_| is_own).and_then(Fields::of).filter(|rest| rest.text("id").is_some()),
            }),
            Block::Reasoning { opaque: Some(raw), .. } | Block::Opaque(raw) if is_own => {
                pieces.push(own_piece(raw));
            }
            Block::Reasoning { .. } | Block::Opaque(_) => pieces.push(Piece::Lost),
        }
    }
    pieces
}

fn own_piece(raw: &str) -> Piece<'_> {
    let Some(item) = Fields::of(raw) else { return Piece::Lost };
    match item.text("type").as_deref() {
        Some("reasoning") => match items::reasoning(&item) {
            Some(kind) => Piece::Reasoning { raw, item, kind },
            None => Piece::Lost,
        },
        Some("message") => {
            let is_answer = item.text("role").as_deref() == Some("assistant");
            Piece::Message { envelope: Some(item).filter(|_| is_answer), texts: Vec::new() }
        }
        _ if items::is_done_by_provider(&item) => Piece::Own { raw, item },
        _ => Piece::Lost,
    }
}

/// Whether nothing of the answer is missing, and each reasoning item is followed by what it led to.
fn is_whole(pieces: &[Piece<'_>]) -> bool {
    let is_there = |piece: &Piece<'_>| match piece {
        Piece::Message { texts, .. } => !texts.is_empty(),
        Piece::Reasoning { .. } | Piece::Call { .. } | Piece::Own { .. } => true,
        Piece::Lost => false,
    };
    let is_known = |pair: &[Piece<'_>]| match pair {
        [before, message @ Piece::Message { .. }] => !before.binds() || message.id().is_some(),
        _ => true,
    };
    pieces.iter().all(is_there) && pieces.windows(2).all(is_known)
}

/// The pieces, and of each whether encrypted reasoning before it ties it to itself.
fn tied<'p, 'a>(pieces: &'p [Piece<'a>]) -> impl Iterator<Item = (&'p Piece<'a>, bool)> {
    pieces.iter().scan(false, |is_tied, piece| {
        *is_tied |= piece.binds();
        Some((piece, *is_tied))
    })
}

fn are_new(ids: &[String], sent: &HashSet<String>) -> bool {
    let distinct: HashSet<&String> = ids.iter().collect();
    distinct.len() == ids.len() && ids.iter().all(|id| !sent.contains(id))
}

impl Piece<'_> {
    /// The id of the provider's item.
    fn id(&self) -> Option<String> {
        let item = match self {
            Piece::Message { envelope, .. } => envelope.as_ref()?,
            Piece::Call { rest, .. } => rest.as_ref()?,
            Piece::Reasoning { item, .. } | Piece::Own { item, .. } => item,
            Piece::Lost => return None,
        };
        Some(item.text("id")?.into_owned()).filter(|id| !id.is_empty())
    }

    /// The id with which the item goes back.
    fn sent_id(&self, is_tied: bool) -> Option<String> {
        let is_verbatim = matches!(self, Piece::Reasoning { .. } | Piece::Own { .. });
        self.id().filter(|_| is_tied || is_verbatim)
    }

    /// Whether this ties the items behind it to itself.
    fn binds(&self) -> bool {
        matches!(self, Piece::Reasoning { kind: Reasoning::Tying, .. })
    }

    /// The item as JSON; with what ties it to its reasoning, if it `is_tied`.
    fn item(&self, is_tied: bool) -> Option<String> {
        match self {
            Piece::Message { texts, .. } if texts.is_empty() => None,
            Piece::Message { envelope, texts } => Some(message(envelope.as_ref(), texts, is_tied)),
            Piece::Call { id, name, arguments, rest } => {
                let rest = rest.as_ref().filter(|_| is_tied).map(|rest| format!(",{}", fields(rest)));
                Some(format!(
                    "{{\"type\":\"function_call\",\"call_id\":{},\"name\":{},\"arguments\":{}{}}}",
                    quoted(id),
                    quoted(&sendable_name(name)),
                    quoted(arguments),
                    rest.unwrap_or_default(),
                ))
            }
            Piece::Reasoning { raw, .. } | Piece::Own { raw, .. } => Some((*raw).to_owned()),
            Piece::Lost => None,
        }
    }
}

/// A message of the model. Its phase always goes back
/// (<https://platform.openai.com/docs/api-reference/responses/create#responses-create-input>), the rest only with its id.
fn message(envelope: Option<&Fields<'_>>, texts: &[&str], is_tied: bool) -> String {
    let head = match envelope.filter(|_| is_tied) {
        Some(envelope) => fields(envelope),
        None => {
            let phase = envelope.and_then(|envelope| envelope.get("phase"));
            let phase = phase.map(|phase| format!(",\"phase\":{phase}")).unwrap_or_default();
            format!("\"type\":\"message\",\"role\":\"assistant\"{phase}")
        }
    };
    let part =
        |text: &&str| format!("{{\"type\":\"output_text\",\"text\":{},\"annotations\":[]}}", quoted(text));
    format!("{{{head},\"content\":[{}]}}", texts.iter().map(part).collect::<Vec<_>>().join(","))
}

/// The fields as they came.
fn fields(fields: &Fields<'_>) -> String {
    let fields = fields.iter().map(|(name, value)| format!("{}:{value}", quoted(name)));
    fields.collect::<Vec<_>>().join(",")
}
