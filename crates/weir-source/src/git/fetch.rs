//! List, choose, fetch, read.

use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::objs::{Exists as _, FindExt as _};
use gix::odb::pack;
use gix::prelude::Find as _;
use gix::protocol::fetch::{Arguments, Negotiate, Response, Shallow, Tags, negotiate};
use gix::protocol::handshake::Ref;
use gix::protocol::{Handshake, LsRefsCommand, ls_refs::RefPrefixes};
use weir_base::tree::LinkedTree;

use super::cache::Lease;
use super::select::{Choice, Chosen, Listed, SelectError, Target};
use super::transport::{Connected, Session};
use super::worktree::Worktree;
use super::{Checkout, GitError, Limits, LocalError, Outcome, Request, Tag, TransportError};

/// No single object of a pack may need more memory than this.
const OBJECT_BYTES_MAX: usize = 1 << 30;
/// How many known commits the server is told about.
const HAVES_MAX: usize = 16;

/// Runs a whole checkout. Blocks.
pub(super) fn checkout(
    request: &Request,
    session: &Session,
    lease: Lease,
    limits: &Limits,
) -> Result<Outcome, GitError> {
    let operation = Operation { request, session, limits };
    let mut connection = operation.connect()?;
    let listed = operation.list(&mut connection, request.target.prefixes())?;
    let choice = match request.target.choose(&listed) {
        Ok(choice) => choice,
        Err(SelectError::NotFound(reference)) => {
            if operation.is_empty(&mut connection)? {
                return Ok(Outcome::Empty);
            }
            let url = request.url.without_credentials().to_string();
            return Err(GitError::ReferenceNotFound { url, reference });
        }
        Err(error) => return Err(error.into()),
    };
    if let Choice::One(chosen) = &choice
        && request.known_revision.as_deref() == Some(chosen.revision().as_str())
    {
        return Ok(Outcome::Unchanged { revision: chosen.revision() });
    }
    lease.prepare(request.url.expose().as_str())?;
    let tags: Vec<ObjectId> = match &choice {
        Choice::One(chosen) => vec![tag_of(&request.target, &listed, chosen)],
        Choice::Newest(all) => all.iter().map(|one| tag_of(&request.target, &listed, one)).collect(),
    }
    .into_iter()
    .flatten()
    .filter_map(|(_, tag)| tag.filter(|_| request.with_tag))
    .collect();
    let candidates = match &choice {
        Choice::One(chosen) => std::slice::from_ref(chosen),
        Choice::Newest(all) => all.as_slice(),
    };
    operation.fetch_all(&mut connection, &lease, candidates, &tags)?;
    let first = Operation::read(&lease, candidates);
    let (chosen, commit) = match first {
        Ok(found) => found,
        Err(error) if operation.must_not_repeat(&error) => return Err(error),
        Err(error) => {
            // A damaged cache: once more, from nothing.
            tracing::debug!(error = %weir_base::error::chain(&error), "rebuilding the Git cache");
            lease.clear().map_err(|source| GitError::Cache { path: lease.packs(), source })?;
            lease.prepare(request.url.expose().as_str())?;
            let mut connection = operation.connect()?;
            operation.fetch_all(&mut connection, &lease, candidates, &tags)?;
            Operation::read(&lease, candidates)?
        }
    };
    let revision = chosen.revision();
    if request.known_revision.as_deref() == Some(revision.as_str()) {
        return Ok(Outcome::Unchanged { revision });
    }
    lease.evict_others();
    let commit_id = chosen.commit.to_string();
    let objects = lease.objects().map_err(|source| cache_error(&lease, source))?;
    let tag = match tag_of(&request.target, &listed, &chosen) {
        None => None,
        Some((name, None)) => Some(Tag { name, id: commit_id.clone(), raw: None }),
        Some((name, Some(id))) => {
            let raw = if request.with_tag { Some(read_tag(&objects, id)?) } else { None };
            Some(Tag { name, id: id.to_string(), raw })
        }
    };
    let worktree = Worktree::of_tree(objects, commit.tree, limits.entries_max, Some(lease))
        .map_err(|source| GitError::Tree { commit: commit_id.clone(), source })?;
    Ok(Outcome::Changed(Box::new(Checkout {
        revision,
        commit: commit_id,
        message: commit.message,
        raw_commit: commit.raw,
        tag,
        worktree,
    })))
}

struct Operation<'a> {
    request: &'a Request,
    session: &'a Session,
    limits: &'a Limits,
}

struct Connection {
    transport: Connected,
    handshake: Handshake,
}

struct Commit {
    raw: Vec<u8>,
    tree: ObjectId,
    message: String,
    committed_seconds: i64,
}

fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(concat!("git/weir-", env!("CARGO_PKG_VERSION")).to_owned()))
}

fn cache_error(lease: &Lease, source: std::io::Error) -> GitError {
    GitError::Cache { path: lease.packs(), source }
}

impl Operation<'_> {
    fn failed(&self, error: &gix::Error) -> GitError {
        GitError::transport(self.request, self.session.failure(error))
    }

    fn connect(&self) -> Result<Connection, GitError> {
        self.session
            .check_time()
            .and_then(|()| self.session.connect(self.limits.list_bytes_max))
            .map_err(|error| GitError::transport(self.request, error))
            .and_then(|mut transport| {
                let handshake = gix::protocol::handshake(
                    &mut transport,
                    gix_transport::Service::UploadPack,
                    // Credentials are sent without being asked for: there is nothing to ask.
                    |_| Ok(None),
                    Vec::new(),
                    &mut gix::progress::Discard,
                )
                .map_err(|error| self.failed(&error))?;
                Ok(Connection { transport, handshake })
            })
    }

    /// The references whose names begin with one of `prefixes`; old servers list all.
    fn list(&self, connection: &mut Connection, prefixes: Vec<String>) -> Result<Vec<Listed>, GitError> {
        self.session.limit(self.limits.list_bytes_max);
        let refs = if let Some(refs) = connection.handshake.refs.clone() {
            refs
        } else {
            let mut wanted = RefPrefixes::new();
            wanted.extend(prefixes.into_iter().map(Into::into));
            LsRefsCommand::new(Some(wanted), &connection.handshake.capabilities, agent())
                .invoke_blocking(&mut connection.transport, &mut gix::progress::Discard, false)
                .map_err(|error| self.failed(&error))?
        };
        Ok(refs.into_iter().filter_map(listed).collect())
    }

    /// Whether the repository has no branch and no tag.
    fn is_empty(&self, connection: &mut Connection) -> Result<bool, GitError> {
        let prefixes = vec!["refs/heads/".to_owned(), "refs/tags/".to_owned()];
        self.list(connection, prefixes).map(|listed| listed.is_empty())
    }

    fn fetch_all(
        &self,
        connection: &mut Connection,
        lease: &Lease,
        candidates: &[Chosen],
        tags: &[ObjectId],
    ) -> Result<(), GitError> {
        let objects = lease.objects().map_err(|source| cache_error(lease, source))?;
        let known = lease.known_commits();
        // A commit never comes without its files.
        let mut wanted: Vec<ObjectId> =
            candidates.iter().map(|chosen| chosen.commit).filter(|commit| !objects.exists(commit)).collect();
        wanted.extend(tags.iter().filter(|tag| !objects.exists(tag)));
        if wanted.is_empty() {
            return Ok(());
        }
        let depth = Shallow::DepthAtRemote(std::num::NonZeroU32::MIN);
        let error = match self.fetch(connection, lease, &wanted, &depth, &known) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if self.session.has_failed() {
            return Err(self.failed(&error));
        }
        let failure = self.session.failure(&error);
        self.session.check_time().map_err(|late| GitError::transport(self.request, late))?;
        let unknown_commit =
            matches!(&failure, TransportError::Protocol(text) if text.contains("not our ref"));
        match &self.request.target {
            Target::Commit { id, .. } if unknown_commit => {
                Err(GitError::Commit { commit: id.to_string(), source: failure })
            }
            // The server may only give out what it has listed: take everything.
            Target::Commit { branch, .. } => self.fetch_history(lease, branch.as_deref()),
            _ if known.is_empty() => Err(GitError::transport(self.request, failure)),
            // The cache may be damaged, or the server no longer knows what is in it.
            _ => {
                tracing::debug!(error = %failure, "fetching without the Git cache");
                lease.clear().map_err(|source| cache_error(lease, source))?;
                lease.prepare(self.request.url.expose().as_str())?;
                let mut connection = self.connect()?;
                self.fetch(&mut connection, lease, &wanted, &depth, &[]).map_err(|error| self.failed(&error))
            }
        }
    }

    /// All of a branch, or of all branches, with history.
    fn fetch_history(&self, lease: &Lease, branch: Option<&str>) -> Result<(), GitError> {
        lease.clear().map_err(|source| cache_error(lease, source))?;
        lease.prepare(self.request.url.expose().as_str())?;
        let mut connection = self.connect()?;
        let listed =
            self.list(&mut connection, vec![format!("refs/heads/{}", branch.unwrap_or_default())])?;
        let mut wanted: Vec<ObjectId> = listed
            .iter()
            .filter(|one| match (one.name.strip_prefix("refs/heads/"), branch) {
                (Some(name), Some(branch)) => name == branch,
                (Some(_), None) => true,
                (None, _) => false,
            })
            .map(|one| one.object)
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        self.fetch(&mut connection, lease, &wanted, &Shallow::NoChange, &[])
            .map_err(|error| self.failed(&error))
    }

    fn fetch(
        &self,
        connection: &mut Connection,
        lease: &Lease,
        wanted: &[ObjectId],
        shallow: &Shallow,
        known: &[ObjectId],
    ) -> gix::Result<()> {
        self.session.limit(self.limits.pack_bytes_max);
        let objects = lease.objects().map_err(gix::Error::from_error)?;
        let haves = known.iter().rev().take(HAVES_MAX).copied().collect();
        let mut wants = OneRound { wanted: wanted.to_vec(), haves };
        let packs = lease.packs();
        gix::protocol::fetch(
            &mut wants,
            |reader, progress, should_interrupt| {
                pack::Bundle::write_to_directory(
                    reader,
                    Some(&packs),
                    progress,
                    should_interrupt,
                    Some(objects),
                    gix::hash::Kind::Sha1,
                    pack::bundle::write::Options {
                        thread_limit: None,
                        alloc_limit_bytes: Some(OBJECT_BYTES_MAX),
                        ..pack::bundle::write::Options::default()
                    },
                )?;
                Ok(true)
            },
            gix::progress::Discard,
            &AtomicBool::new(false),
            gix::protocol::fetch::Context {
                handshake: &mut connection.handshake,
                transport: &mut connection.transport,
                user_agent: agent(),
                trace_packetlines: false,
            },
            gix::protocol::fetch::Options {
                shallow_file: lease.shallow_file(),
                shallow,
                tags: Tags::None,
                reject_shallow_remote: false,
            },
        )?;
        // Tags are no commits to negotiate with.
        let objects = lease.objects().map_err(gix::Error::from_error)?;
        let is_commit = |id: &&ObjectId| {
            let mut buffer = Vec::new();
            matches!(objects.try_find(id, &mut buffer), Ok(Some(data)) if data.kind == gix::objs::Kind::Commit)
        };
        let commits: Vec<ObjectId> = wanted.iter().filter(is_commit).copied().collect();
        lease.remember(&commits).map_err(gix::Error::from_error)
    }

    /// The commit to check out: of several, the one committed last.
    fn read(lease: &Lease, candidates: &[Chosen]) -> Result<(Chosen, Commit), GitError> {
        let objects = lease.objects().map_err(|source| cache_error(lease, source))?;
        let mut newest: Option<(Chosen, Commit)> = None;
        for chosen in candidates {
            let commit = read_commit(&objects, chosen.commit).map_err(|text| GitError::Commit {
                commit: chosen.commit.to_string(),
                source: TransportError::Protocol(text),
            })?;
            if newest.as_ref().is_none_or(|(_, other)| commit.committed_seconds >= other.committed_seconds) {
                newest = Some((chosen.clone(), commit));
            }
        }
        newest.ok_or(GitError::Aborted)
    }

    /// A commit that is missing after its history was fetched, or that is no commit, stays so.
    fn must_not_repeat(&self, error: &GitError) -> bool {
        matches!(error, GitError::Commit { source: TransportError::Protocol(text), .. }
            if text == NOT_A_COMMIT
                || (text == NOT_FOUND && matches!(self.request.target, Target::Commit { .. })))
    }
}

const NOT_FOUND: &str = "object not found";
const NOT_A_COMMIT: &str = "the object is not a commit";

/// The files of a commit of a repository of this machine.
pub(super) fn read_local(
    path: &std::path::Path,
    reference: &str,
    bytes_max: u64,
    entries_max: usize,
) -> Result<LinkedTree, LocalError> {
    let repository = gix::open_opts(path, gix::open::Options::isolated())
        .map_err(|error| LocalError::Open(error.to_string()))?;
    let missing = || LocalError::Reference(reference.to_owned());
    let id = match Target::fetched(reference) {
        Target::Commit { id, .. } => id,
        _ => Target::fetched_names(reference)
            .iter()
            .find_map(|name| repository.try_find_reference(name.as_str()).ok().flatten())
            .and_then(|mut found| found.peel_to_id().ok())
            .ok_or_else(missing)?
            .detach(),
    };
    let commit = read_commit(&repository.objects, id).map_err(|_| missing())?;
    let worktree = Worktree::of_tree((*repository.objects).clone(), commit.tree, entries_max, None)?;
    Ok(worktree.into_tree(bytes_max)?)
}

fn read_commit(objects: &gix::odb::Handle, id: ObjectId) -> Result<Commit, String> {
    let mut buffer = Vec::new();
    let raw = match objects.try_find(&id, &mut buffer) {
        Ok(None) => return Err(NOT_FOUND.to_owned()),
        Ok(Some(data)) if data.kind != gix::objs::Kind::Commit => {
            return Err(NOT_A_COMMIT.to_owned());
        }
        Ok(Some(data)) => data.data.to_vec(),
        Err(error) => return Err(error.to_string()),
    };
    let commit = objects.find_commit(&id, &mut buffer).map_err(|error| error.to_string())?;
    Ok(Commit {
        raw,
        tree: commit.tree(),
        message: commit.message.to_string(),
        committed_seconds: commit.committer().ok().map_or(0, |committer| committer.seconds()),
    })
}

/// The tag the chosen commit was found by: its name and, if it is annotated, its object.
fn tag_of(target: &Target, listed: &[Listed], chosen: &Chosen) -> Option<(String, Option<ObjectId>)> {
    let name = match target {
        Target::Tag(tag) => tag.clone(),
        Target::Semver { .. } => chosen.label.clone()?,
        Target::Name(name) => name.strip_prefix("refs/tags/")?.trim_end_matches("^{}").to_owned(),
        Target::Branch(_) | Target::Any(_) | Target::Commit { .. } => return None,
    };
    let full = format!("refs/tags/{name}");
    listed.iter().find(|one| one.name == full).map(|one| (name, one.tag))
}

fn read_tag(objects: &gix::odb::Handle, id: ObjectId) -> Result<Vec<u8>, GitError> {
    let mut buffer = Vec::new();
    let failed =
        |text: String| GitError::Commit { commit: id.to_string(), source: TransportError::Protocol(text) };
    match objects.try_find(&id, &mut buffer) {
        Ok(Some(data)) if data.kind == gix::objs::Kind::Tag => Ok(data.data.to_vec()),
        Ok(Some(_)) => Err(failed("the object is not a tag".to_owned())),
        Ok(None) => Err(failed(NOT_FOUND.to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn listed(reference: Ref) -> Option<Listed> {
    Some(match reference {
        Ref::Peeled { full_ref_name, tag, object } => {
            Listed { name: full_ref_name.to_string(), object, tag: Some(tag) }
        }
        Ref::Direct { full_ref_name, object } => {
            Listed { name: full_ref_name.to_string(), object, tag: None }
        }
        Ref::Symbolic { full_ref_name, tag, object, .. } => {
            Listed { name: full_ref_name.to_string(), object, tag }
        }
        Ref::Unborn { .. } => return None,
    })
}

/// Asks for exactly the wanted commits and tells all that is known, in one round.
struct OneRound {
    wanted: Vec<ObjectId>,
    haves: Vec<ObjectId>,
}

impl Negotiate for OneRound {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<negotiate::Action> {
        Ok(negotiate::Action::MustNegotiate { remote_ref_target_known: Vec::new() })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _known: &[bool]) -> bool {
        for commit in &self.wanted {
            arguments.want(commit);
        }
        !self.wanted.is_empty()
    }

    fn one_round(
        &mut self,
        _state: &mut negotiate::one_round::State,
        arguments: &mut Arguments,
        _previous: Option<&Response>,
    ) -> gix::Result<(negotiate::Round, bool)> {
        for commit in &self.haves {
            arguments.have(commit);
        }
        let round = negotiate::Round {
            haves_sent: self.haves.len(),
            in_vain: 0,
            haves_to_send: self.haves.len(),
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}
