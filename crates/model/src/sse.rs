//! Cuts a byte stream into server-sent events, wherever the stream's pieces begin and end.
//!
//! Follows the event stream format of the HTML standard (lines end with LF, CRLF or CR; comments are passed over; several
//! data lines are joined) with three leniencies that providers make necessary: an unknown field is passed over, an
//! event that the end of the stream leaves open is taken, and a JSON object that begins a line outside any field is an
//! event, over however many lines it goes, which is how Gemini reports an error in a stream that began.

/// The byte order mark, which may stand before anything.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// The state between two pieces of a stream.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    line: Vec<u8>,
    after_cr: bool,
    any_line: bool,
    name: String,
    data: Option<String>,
    json: Option<Object>,
}

/// Where events go: the name, which may be empty, and the data.
pub(crate) type Sink<'a> = dyn FnMut(&str, &str) + 'a;

impl Framing {
    /// Takes the next bytes.
    pub(crate) fn push(&mut self, mut bytes: &[u8], sink: &mut Sink<'_>) {
        while !bytes.is_empty() {
            if let Some(mut json) = self.json.take() {
                let taken = json.take(bytes);
                bytes = &bytes[taken..];
                self.pass_on(json, sink);
                continue;
            }
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.line.extend_from_slice(bytes);
                return;
            };
            self.after_cr = bytes[end] == b'\r';
            if self.line.is_empty() {
                self.take_line(&bytes[..end], sink);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                self.take_line(&line, sink);
                line.clear();
                self.line = line;
            }
            bytes = &bytes[end + 1..];
        }
    }

    /// Ends the stream: what is open is taken as it is.
    pub(crate) fn finish(&mut self, sink: &mut Sink<'_>) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take_line(&line, sink);
        }
        self.dispatch(sink);
        if let Some(json) = self.json.take() {
            sink("", &String::from_utf8_lossy(&json.text));
        }
    }

    /// Makes an object an event if it is whole, and else waits for the rest of it.
    fn pass_on(&mut self, json: Object, sink: &mut Sink<'_>) {
        match json.depth {
            0 => sink("", &String::from_utf8_lossy(&json.text)),
            _ => self.json = Some(json),
        }
    }

    fn take_line(&mut self, line: &[u8], sink: &mut Sink<'_>) {
        let line = match std::mem::replace(&mut self.any_line, true) {
            false => line.strip_prefix(BOM).unwrap_or(line),
            true => line,
        };
        if line.is_empty() {
            return self.dispatch(sink);
        }
        if line[0] == b'{' && self.data.is_none() {
            let mut json = Object::default();
            json.take(line);
            json.take(b"\n");
            return self.pass_on(json, sink);
        }
        let colon = line.iter().position(|&b| b == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match &line[..colon] {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(&value);
                }
                None => self.data = Some(value.into_owned()),
            },
            b"event" => self.name = value.into_owned(),
            _ => {}
        }
    }

    fn dispatch(&mut self, sink: &mut Sink<'_>) {
        if let Some(data) = self.data.take() {
            sink(&self.name, &data);
        }
        self.name.clear();
    }
}

/// A JSON object on its way.
#[derive(Debug, Default)]
struct Object {
    text: Vec<u8>,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl Object {
    /// Takes bytes up to the end of the object, and says how many.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = bytes.len();
        for (at, byte) in bytes.iter().enumerate() {
            if self.depth == 0 && !self.text.is_empty() {
                return 0;
            }
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' if !self.in_string => self.depth += 1,
                b'}' if !self.in_string => self.depth -= 1,
                _ => {}
            }
            if self.depth == 0 {
                taken = at + 1;
                break;
            }
        }
        self.text.extend_from_slice(&bytes[..taken]);
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Vec::new();
        let mut framing = Framing::default();
        let mut sink = |name: &str, data: &str| events.push((name.to_owned(), data.to_owned()));
        for piece in pieces {
            framing.push(piece, &mut sink);
        }
        framing.finish(&mut sink);
        events
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    /// H09: comments, blank data, events without data and unknown fields are no answer, and end none.
    #[test]
    fn all_that_the_format_allows_is_understood() {
        let body = "\u{feff}data: a\r\n\r\n: ping\n\nevent: x\n\nevent: error\ndata:b\ndata:  c\n\ndata\nid: 7\nwhat\n\nretry: x\rdata: ñ\r\rdata: open";
        assert_eq!(
            events(&[body.as_bytes()]),
            [pair("", "a"), pair("error", "b\n c"), pair("", ""), pair("", "ñ"), pair("", "open")]
        );
    }

    #[test]
    fn json_outside_any_field_is_an_event() {
        let object = "{\"error\":\n {\"message\":\"a \\\" }\"}}";
        let body = format!("data: a\n\n{object} , \ndata: b\n\n{{\"cut\":\n");
        assert_eq!(
            events(&[body.as_bytes()]),
            [pair("", "a"), pair("", object), pair("", "b"), pair("", "{\"cut\":\n")]
        );
        let crlf = "data: a\r\n\r\n{\r\n}\r\n\r\ndata: b\r\n\r\n";
        assert_eq!(events(&[crlf.as_bytes()]), [pair("", "a"), pair("", "{\n\n}"), pair("", "b")]);
    }

    proptest! {
        /// H08: the same events come out wherever the stream is cut.
        #[test]
        fn the_pieces_do_not_matter(
            text in "(data: |event: |:|\r\n|\n|\r|ñ|x|\\{|\\}|\"|\\\\|id){0,40}",
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(events(&pieces), events(&[bytes]));
            prop_assert_eq!(events(&single), events(&[bytes]));
        }
    }
}
