//! Plans bound to buffers for good: made once, then started and awaited again and again.
//!
//! **What advances a started plan.** A plan goes on whenever a thread is in [`Persistent::start`], [`Persistent::test`] or
//! [`Persistent::wait`] of this or any other plan, or in a blocking collective of this library: each of these, while it
//! waits, advances all plans of the process that were started before it began to wait. Calls of MPI itself do not advance a plan, and neither does
//! time. So a rank that has started a plan must not wait in MPI for something that another rank sends only after its own
//! plan is done.

mod body;

use std::sync::Arc;

use bruckner_mpi::{TagRange, Word};
use bruckner_runtime::Transport;

use crate::Error;
use crate::call::Call;
use crate::choose::Choice;
use crate::communicator::{Communicator, DEVICE, Room, Site, Stopped, Store};
use crate::engine::{Door, Engine, Entry, Serving};
use crate::normal::{Normal, normal};
pub(crate) use crate::persistent::body::Body;
use crate::plans::Prepared;
use crate::turn::{Taken, Turn};

pub(crate) struct Inner {
    engine: &'static Engine,
    /// Keeps the communicator's books even if its handle is freed.
    entry: Arc<Entry>,
    comm: Word,
    call: Call,
    normal: Option<Normal>,
    tags: Option<TagRange>,
    pub(crate) body: Turn<Body>,
    choice: Choice,
}

// SAFETY: the addresses in it are the user's, who vouches for them until the plan is done.
unsafe impl Send for Inner {}
// SAFETY: as above; what changes has its lock.
unsafe impl Sync for Inner {}

impl Inner {
    fn communicator(&self) -> Option<&Communicator> {
        match &self.entry.serving {
            Serving::Planned(communicator) => Some(communicator),
            _ => None,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (Serving::Planned(communicator), Some(tags)) = (&self.entry.serving, self.tags) {
            communicator.hidden.give_back(tags);
        }
    }
}

/// What a plan is made of.
struct Made {
    prepared: Prepared,
    choice: Choice,
    room: Room,
    normal: Option<Normal>,
    tags: Option<TagRange>,
}

impl Made {
    fn native(choice: Choice) -> Made {
        Made { prepared: Prepared::Native, choice, room: Room::none(), normal: None, tags: None }
    }
}

/// A plan.
pub struct Persistent(Arc<Inner>);

impl Persistent {
    /// Makes a plan of a call. Collective. An algorithm that is named is used, or refused with the reason.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name, and stay so as long as the plan is used.
    pub unsafe fn new(
        engine: &'static Engine,
        call: Call,
        comm: Word,
        algorithm: Option<&str>,
    ) -> Result<Persistent, Error> {
        let entry = engine.kept(comm, Door::Api)?;
        let asked = algorithm.filter(|text| !text.is_empty()).map(str::parse).transpose();
        let asked: Option<bruckner_algorithms::Expression> =
            asked.map_err(|error| Error::Argument(format!("{error}")))?;
        let normal = match &entry.serving {
            Serving::Planned(communicator) => {
                normal(engine.mpi, &call, communicator.rank.0, communicator.size)?
            }
            _ => return Ok(Persistent::native(engine, entry, comm, call, "the communicator is not served")),
        };
        let normal = match normal {
            Ok(normal) => normal,
            Err(native) => return Ok(Persistent::native(engine, entry, comm, call, native.why())),
        };
        let given = asked.clone().map(|expression| Choice { expression, why: "asked for".into() });
        let made = Persistent::planned(engine, entry, comm, call, normal, given, false)?;
        match asked {
            Some(asked) if made.is_native() && asked.to_string() != "native" => Err(Error::Argument(
                format!("`{asked}` does not serve this {} here: {}", call.name().text(), made.0.choice.why),
            )),
            _ => Ok(made),
        }
    }

    /// A plan for a persistent request of MPI's, which is advanced only where the MPI has a hook, or needs no advancing
    /// because it has one round. `Err` has the reason why there is none, on all ranks. Collective.
    ///
    /// # Safety
    /// As for [`Persistent::new`].
    pub(crate) unsafe fn for_request(
        engine: &'static Engine,
        entry: Arc<Entry>,
        call: Call,
        comm: Word,
    ) -> Result<Result<Persistent, String>, Error> {
        let communicator = match &entry.serving {
            Serving::Planned(communicator) => communicator,
            Serving::Native(why) => return Ok(Err((*why).to_owned())),
            Serving::NotYet(_) => return Ok(Err("the first calls on a communicator".to_owned())),
        };
        let normal = match normal(engine.mpi, &call, communicator.rank.0, communicator.size) {
            Ok(Ok(normal)) => normal,
            Ok(Err(native)) => return Ok(Err(native.why().to_owned())),
            Err(_) => return Ok(Err("arguments that are left to MPI".to_owned())),
        };
        let one_round = !communicator.hidden.hooked;
        let mut made = Persistent::planned(engine, entry, comm, call, normal, None, one_round)?;
        if made.is_native() {
            let why = &made.0.choice.why;
            let only = if one_round { "; nothing would advance a plan of several rounds here" } else { "" };
            return Ok(Err(format!("{why}{only}")));
        }
        // Inside MPI's progress only requests that are posted anew can be given back.
        let inner = Arc::get_mut(&mut made.0).expect("nobody else has it yet");
        inner.body.get_mut().post_anew();
        Ok(Ok(made))
    }

    /// Whether MPI alone brings it on once it is started.
    pub(crate) fn is_one_round(&self) -> bool {
        match &self.body().prepared {
            Prepared::Ready(plan) => plan.compiled().one_round,
            Prepared::Sized(plan) => plan.one_round,
            Prepared::Native => true,
        }
    }

    /// The algorithm, and why it.
    pub(crate) fn choice(&self) -> &Choice {
        &self.0.choice
    }

    /// A plan that is the MPI's own collective.
    fn native(engine: &'static Engine, entry: Arc<Entry>, comm: Word, call: Call, why: &str) -> Persistent {
        Persistent::of(engine, entry, comm, call, Made::native(Choice::native(why)))
    }

    /// A plan by one of the algorithms for a call on a communicator that is served. Collective.
    fn planned(
        engine: &'static Engine,
        entry: Arc<Entry>,
        comm: Word,
        call: Call,
        mut normal: Normal,
        given: Option<Choice>,
        one_round: bool,
    ) -> Result<Persistent, Error> {
        let Serving::Planned(communicator) = &entry.serving else { unreachable!("it is served") };
        let state = communicator.take()?;
        let (topology, kind) = (state.topology.clone(), state.limits.kind(&normal.common));
        let choices = match given {
            Some(choice) => vec![choice, Choice::native("no algorithm fits")],
            None => communicator.choices(&kind, &topology, &state.rules, state.device),
        };
        drop(state);
        let Some(tags) = communicator.more_tags()? else {
            return Ok(Persistent::native(engine, entry, comm, call, "no tags are left"));
        };
        // Memory of its own: plans may be started in any order.
        let mut store = Store::new();
        let site = Site { topology: &topology, tags, one_round };
        let (prepared, choice) = match communicator.prepare(&mut store, &site, kind, || choices, &mut normal)
        {
            Ok(Ok(mut slot)) => {
                // SAFETY: in the store, which nobody else has.
                let slot = unsafe { slot.as_mut() };
                (slot.prepared.take().unwrap_or(Prepared::Native), Choice::clone(&slot.choice))
            }
            Ok(Err(Stopped::Device)) => {
                communicator.take()?.leave_to_mpi();
                communicator.hidden.give_back(tags);
                return Ok(Persistent::native(engine, entry, comm, call, DEVICE));
            }
            Ok(Err(Stopped::Different)) => {
                communicator.hidden.give_back(tags);
                return Ok(Persistent::native(engine, entry, comm, call, "ranks make different calls"));
            }
            Err(error) => {
                communicator.hidden.give_back(tags);
                return Err(error);
            }
        };
        let made = Made { prepared, choice, room: store.room, normal: Some(normal), tags: Some(tags) };
        Ok(Persistent::of(engine, entry, comm, call, made))
    }

    fn of(engine: &'static Engine, entry: Arc<Entry>, comm: Word, call: Call, made: Made) -> Persistent {
        let Made { prepared, choice, room, normal, tags } = made;
        let body = Turn::new(Body::new(prepared, room));
        Persistent(Arc::new(Inner { engine, entry, comm, call, normal, tags, body, choice }))
    }

    fn body(&self) -> Taken<'_, Body> {
        self.0.body.take()
    }

    /// Starts it. Not collective in order: ranks may start their plans in any order.
    ///
    /// # Safety
    /// The buffers are the plan's until it is done.
    pub unsafe fn start(&self) -> Result<(), Error> {
        let mut body = self.body();
        if body.is_active {
            return Err(Error::Plan("the plan is started already"));
        }
        // SAFETY: the caller's promise.
        unsafe { body.start(&self.0) }?;
        if body.is_active {
            drop(body);
            self.0.engine.active.add(self.0.clone());
        }
        Ok(())
    }

    /// Does what can be done without waiting; whether it is done. A plan that is not started is done.
    pub fn test(&self) -> Result<bool, Error> {
        let mut body = self.body();
        // Another thread, or a call that waited, may have brought it to its end.
        body.advance(&self.0, false);
        let done = !body.is_active;
        let failed = body.failed.take();
        drop(body);
        if done {
            self.0.engine.active.remove(&self.0);
        } else {
            self.0.engine.active.advance(false);
        }
        failed.map_or(Ok(done), Err)
    }

    /// Waits until it is done; all other started plans go on meanwhile.
    pub fn wait(&self) -> Result<(), Error> {
        let Some(communicator) = self.0.communicator() else {
            while !self.test()? {
                std::hint::spin_loop();
            }
            return Ok(());
        };
        let active = &self.0.engine.active;
        let messages = &communicator.hidden.messages;
        let mut body = self.body();
        if active.count() <= 1 && body.is_active && !matches!(body.prepared, Prepared::Native) {
            body.finish(&self.0, messages);
            let failed = body.failed.take();
            drop(body);
            active.remove(&self.0);
            return failed.map_or(Ok(()), Err);
        }
        drop(body);
        let mut result = Ok(());
        messages.patience().wait(
            || match self.test() {
                Ok(done) => done,
                Err(error) => {
                    result = Err(error);
                    true
                }
            },
            || messages.progress(),
        );
        result
    }

    /// Starts it and waits until it is done: what a blocking call costs least as.
    ///
    /// # Safety
    /// As for [`Persistent::start`].
    pub unsafe fn run(&self) -> Result<(), Error> {
        let Some(communicator) = self.0.communicator() else {
            // SAFETY: the caller's promise.
            return unsafe { self.0.call.native(self.0.engine.mpi, self.0.comm) }.map_err(Error::from);
        };
        let mut body = self.body();
        if self.0.engine.active.is_empty() && !body.is_active {
            // SAFETY: the caller's promise.
            return unsafe { body.run(&self.0, &communicator.hidden.messages) };
        }
        drop(body);
        // SAFETY: the caller's promise.
        unsafe { self.start() }?;
        self.wait()
    }

    /// Whether it is started and not yet done.
    pub fn is_active(&self) -> bool {
        self.body().is_active
    }

    /// Whether it is the MPI's own collective.
    pub fn is_native(&self) -> bool {
        matches!(self.body().prepared, Prepared::Native)
    }
}
