//! Which comment belongs to which node, as `yaml.v3` decides it.
//!
//! The scanner logs comments with the token they were found at; the parser hands them to nodes when it comes to that
//! token. A comment is at the *head* of what follows, at the end of the *line* of a node, or at the *foot* of what came
//! before, which an empty line or a smaller indentation after it tells.

use std::collections::VecDeque;

use crate::chars::{byte, is_blank, is_break, is_break_or_end, line_end};
use crate::node::Comments;
use crate::scan::Mark;

/// The library looks no further than this many bytes for the next comment.
const LOOK_AHEAD_BYTES_MAX: usize = 512;

/// A comment, and the places that decide what it belongs to.
#[derive(Debug, Clone, Default)]
struct Comment {
    /// Where the search for it began.
    scanned_from: usize,
    /// The token it belongs to starts here or later.
    token: usize,
    start: Mark,
    end: usize,
    text: Comments,
}

/// What stands around a run of comments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    /// Where the search for the next token began.
    pub(crate) scanned_from: Mark,
    /// Where the token before starts, and whether it is a `:`.
    pub(crate) token: (usize, bool),
    /// The column of the innermost block collection.
    pub(crate) indent: i32,
    pub(crate) in_flow: bool,
    /// Line breaks since the last character that is not white.
    pub(crate) newlines: usize,
}

/// The comments that no node has taken yet.
#[derive(Debug, Default)]
pub(crate) struct CommentLog {
    waiting: VecDeque<Comment>,
}

impl CommentLog {
    /// Adds the comment on the rest of the line, if there is one, to the token at `token`; gives the offset behind it.
    pub(crate) fn line(&mut self, text: &str, at: Mark, token: usize) -> usize {
        let bytes = text.as_bytes();
        let from = at.offset as usize;
        let blanks = bytes.iter().skip(from).take(LOOK_AHEAD_BYTES_MAX).take_while(|b| is_blank(**b)).count();
        let start = from + blanks;
        if blanks == LOOK_AHEAD_BYTES_MAX || byte(bytes, start) != b'#' {
            return from;
        }
        let end = line_end(bytes, start);
        let column = at.column + blanks as u32;
        self.waiting.push_back(Comment {
            token,
            start: Mark { offset: start as u32, line: at.line, column },
            text: Comments {
                line: text.get(start..end).unwrap_or_default().to_owned(),
                ..Comments::default()
            },
            ..Comment::default()
        });
        end
    }

    /// Makes the last comment, found behind the sign before the first item of a sequence, one at the head of the item.
    pub(crate) fn line_to_head(&mut self, at: Mark) {
        if let Some(comment) = self.waiting.back_mut().filter(|comment| !comment.text.line.is_empty()) {
            comment.text.head = std::mem::take(&mut comment.text.line);
            if comment.start.line + 1 == at.line {
                comment.token = at.offset as usize;
            }
        }
    }

    /// Adds the comments on this line and on those that follow it; gives the offset behind the last of them.
    pub(crate) fn lines(&mut self, text: &str, at: Mark, around: Surroundings) -> usize {
        let bytes = text.as_bytes();
        let indent = around.indent.max(0) as usize;
        let mut scanned_from = around.scanned_from.offset as usize;
        let (mut token, after_value) = around.token;
        let mut position = at.offset as usize;
        let (mut line, mut column) = (at.line as usize, at.column as usize);
        let mut comment_line = line;
        let mut first_empty = around.newlines <= 1;
        let mut recent_empty = false;
        let foot_line = (around.scanned_from.line > 0).then(|| {
            let extra = usize::from(around.newlines == 0 && at.column > 1);
            (line + 1 + extra).saturating_sub(around.newlines)
        });
        let mut start = Mark::default();
        let mut comment = String::new();
        let mut peek = 0;
        while peek < LOOK_AHEAD_BYTES_MAX {
            column += 1;
            let here = position + peek;
            let character = byte(bytes, here);
            if is_blank(character) {
                peek += 1;
                continue;
            }
            let closes = around.in_flow && matches!(character, b']' | b'}');
            if closes || is_break_or_end(bytes, here) {
                if closes || !recent_empty {
                    let foot = (Some(start.line as usize) == foot_line && !after_value)
                        || (start.column as usize) < indent + 1;
                    if closes || (first_empty && foot) {
                        if !comment.is_empty() {
                            if (start.column as usize) < indent + 1 {
                                token = start.offset as usize;
                            }
                            self.foot(std::mem::take(&mut comment), start, here, token, scanned_from);
                            scanned_from = here;
                            token = here;
                        }
                    } else if !comment.is_empty() && here < bytes.len() {
                        comment.push('\n');
                    }
                }
                if !is_break(bytes, here) {
                    break;
                }
                first_empty = false;
                recent_empty = true;
                column = 0;
                line += 1;
                // Only one byte is passed: the second one of CR LF counts as an empty line.
                peek += 1;
                continue;
            }
            if !comment.is_empty() && (closes || (column < indent + 1 && column != start.column as usize)) {
                self.foot(std::mem::take(&mut comment), start, here, token, scanned_from);
                scanned_from = here;
                token = here;
            }
            if character != b'#' {
                break;
            }
            if comment.is_empty() {
                start = Mark { offset: here as u32, line: line as u32, column: column as u32 };
            } else {
                comment.push('\n');
            }
            recent_empty = false;
            let end = line_end(bytes, here);
            comment.push_str(text.get(here..end).unwrap_or_default());
            comment_line += text.get(position..here).unwrap_or_default().matches('\n').count();
            position = end;
            peek = 1;
            column = 0;
            line = comment_line;
        }
        if !comment.is_empty() {
            self.waiting.push_back(Comment {
                scanned_from,
                token: start.offset as usize,
                start,
                end: (position + peek).saturating_sub(1),
                text: Comments { head: comment, ..Comments::default() },
            });
        }
        position
    }

    fn foot(&mut self, text: String, start: Mark, end: usize, token: usize, scanned_from: usize) {
        let text = Comments { foot: text, ..Comments::default() };
        self.waiting.push_back(Comment { scanned_from, token, start, end, text });
    }

    /// Where a block that ends before a comment really ends: at the first comment of its own indentation.
    ///
    /// `end` is where the block before it ended, or the last line did; `offset` the last offset that belongs to it.
    pub(crate) fn block_end(&self, end: &mut Mark, offset: &mut i64, indent: i32) {
        let mut stop = *offset;
        for comment in self.waiting.iter().rev() {
            if (comment.end as i64) < stop {
                break;
            }
            if i64::from(comment.start.column) == i64::from(indent) + 1 {
                *end = comment.start;
                *offset = i64::from(comment.start.offset);
            }
            stop = comment.scanned_from as i64;
        }
    }

    /// Moves the comments that belong to a token, or to one before it, to `taken`. Ends of blocks have no head.
    pub(crate) fn take(&mut self, token: usize, ends_block: bool, taken: &mut Comments) {
        while let Some(comment) = self.waiting.front().filter(|comment| token >= comment.token) {
            if ends_block && !comment.text.head.is_empty() {
                break;
            }
            for (from, to) in [
                (&comment.text.head, &mut taken.head),
                (&comment.text.foot, &mut taken.foot),
                (&comment.text.line, &mut taken.line),
            ] {
                if !from.is_empty() {
                    if !to.is_empty() {
                        to.push('\n');
                    }
                    to.push_str(from);
                }
            }
            self.waiting.pop_front();
        }
    }
}
