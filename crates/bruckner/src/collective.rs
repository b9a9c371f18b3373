//! What can be done with a collective and its buffers: run, compared, planned.

use std::ffi::c_int;
use std::marker::PhantomData;

use bruckner_engine::call::{Call, Lists};
use bruckner_engine::mpi::{MpiError, Rival};
use bruckner_engine::{Engine, EntryPoint, Error, Mpi};

/// A persistent operation on the MPI of this process.
type Persistent = bruckner_engine::Persistent<Mpi>;

/// A collective with its buffers, to be run now or planned for many times. Nothing happens until then.
#[must_use = "nothing happens until it is run or planned"]
pub struct Collective<'a> {
    engine: &'static Engine<Mpi>,
    comm: u64,
    call: Call,
    /// Plans by several algorithms.
    plans: Vec<Persistent>,
    lists: Lists,
    buffers: PhantomData<&'a mut ()>,
}

impl<'a> Collective<'a> {
    /// One on a communicator, whose lengths were checked against its counts.
    pub(crate) fn new(engine: &'static Engine<Mpi>, comm: u64, call: Call, lists: Lists) -> Collective<'a> {
        Collective { engine, comm, call, plans: Vec::new(), lists, buffers: PhantomData }
    }

    /// Does it. Collective.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// world.barrier()?.run()?;
    /// # Ok(()) });
    /// ```
    pub fn run(&mut self) -> Result<(), Error> {
        let (engine, comm) = (self.engine, self.comm);
        // SAFETY: whoever made the call has checked lengths against counts.
        let code = match unsafe { engine.run_cached(&self.call, comm) } {
            Some(again) => again?,
            // SAFETY: as above.
            None => unsafe { engine.run(&self.call, comm, EntryPoint::Api) }?,
        };
        self.done(code)
    }

    /// Does it by the MPI's own function, whatever the library would choose. Collective.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut sum = [0];
    /// world.allreduce(&[1], &mut sum, Operation::Sum)?.run_native()?;
    /// assert_eq!(sum[0], world.size()?);
    /// # Ok(()) });
    /// ```
    pub fn run_native(&mut self) -> Result<(), Error> {
        // SAFETY: whoever made the call has checked lengths against counts.
        self.done(unsafe { self.engine.native(&self.call, self.comm) })
    }

    /// Does it by another library's function, to be compared with this one's. Collective.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let other = "/opt/other/libcollectives.so";
    /// // SAFETY: whoever names a library vouches for it.
    /// if let Ok(rival) = unsafe { bruckner::Rival::load(other.as_ref()) } {
    ///     world.barrier()?.run_rival(&rival)?;
    /// }
    /// # Ok(()) });
    /// ```
    pub fn run_rival(&mut self, rival: &Rival) -> Result<(), Error> {
        // SAFETY: whoever made the call has checked lengths against counts.
        unsafe { self.engine.by_rival(rival, &self.call, self.comm) }
    }

    /// What an MPI function returned.
    fn done(&self, code: c_int) -> Result<(), Error> {
        match code {
            0 => Ok(()),
            code => Err(Error::Mpi(MpiError { call: self.call.function.name(), code })),
        }
    }

    /// Plans it by another algorithm beside those that there are; its number. Nothing stays behind of one that does not fit.
    /// Collective.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut sum = [0];
    /// let mut sums = world.allreduce(&[1], &mut sum, Operation::Sum)?;
    /// for algorithm in ["recursive-doubling", "native"] {
    ///     // On one rank there is nothing to plan.
    ///     if let Ok(number) = sums.add(algorithm) {
    ///         sums.run_by(number)?;
    ///     }
    /// }
    /// # Ok(()) });
    /// ```
    pub fn add(&mut self, algorithm: &str) -> Result<usize, Error> {
        // SAFETY: buffers and lists live as long as this, and so the plan.
        let plan = unsafe { self.engine.persistent(self.call, self.comm, algorithm) }?;
        self.plans.push(plan);
        Ok(self.plans.len() - 1)
    }

    /// Does it by an algorithm that was added: many ways, one behind the other, on the same buffers. Collective.
    ///
    /// # Panics
    /// If there is no algorithm of this number.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut sum = [0];
    /// let mut sums = world.allreduce(&[1], &mut sum, Operation::Sum)?;
    /// let native = sums.add("native")?;
    /// sums.run_by(native)?;
    /// drop(sums);
    /// assert_eq!(sum[0], world.size()?);
    /// # Ok(()) });
    /// ```
    pub fn run_by(&mut self, number: usize) -> Result<(), Error> {
        // SAFETY: the buffers are borrowed as long as this lives, and nobody else uses them until it returns.
        unsafe { self.plans[number].run() }
    }

    /// Plans it, by an algorithm; an empty text leaves the choice to the library. Collective.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut sum = [0];
    /// let mut plan = world.allreduce(&[1], &mut sum, Operation::Sum)?.plan("")?;
    /// for _ in 0..3 {
    ///     plan.run()?;
    /// }
    /// drop(plan);
    /// assert_eq!(sum[0], world.size()?);
    /// # Ok(()) });
    /// ```
    pub fn plan(self, algorithm: &str) -> Result<Plan<'a>, Error> {
        let Collective { engine, comm, call, lists, buffers, .. } = self;
        // SAFETY: as above; buffers and lists live as long as the plan.
        let plan = unsafe { engine.persistent(call, comm, algorithm) }?;
        Ok(Plan { plan, _lists: lists, _buffers: buffers })
    }
}

/// A plan that borrows its buffers until it is dropped.
pub struct Plan<'a> {
    plan: Persistent,
    _lists: Lists,
    _buffers: PhantomData<&'a mut ()>,
}

/// Advances a plan that is started.
pub struct Progress<'p>(&'p Persistent);

impl Progress<'_> {
    /// Does what can be done without waiting; whether the plan is done.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let mut plan = world.barrier()?.plan("")?;
    /// let done = plan.overlap(|progress| progress.advance())??;
    /// println!("{}", if done { "done at once" } else { "done in the end" });
    /// # Ok(()) });
    /// ```
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.0.test()
    }
}

impl Plan<'_> {
    /// Whether it is the MPI's own collective.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let plan = world.barrier()?.plan("native")?;
    /// assert!(plan.is_native());
    /// # Ok(()) });
    /// ```
    pub fn is_native(&self) -> bool {
        self.plan.is_native()
    }

    /// Does it once. Collective.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let mut plan = world.barrier()?.plan("")?;
    /// plan.run()?;
    /// plan.run()?;
    /// # Ok(()) });
    /// ```
    pub fn run(&mut self) -> Result<(), Error> {
        // SAFETY: the buffers are borrowed as long as the plan lives.
        unsafe { self.plan.run() }
    }

    /// Starts it, works, and waits until it is done. The work may advance it now and then; so does every other collective of this
    /// library that waits. Collective.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut sum = [0];
    /// let mut plan = world.allreduce(&[1], &mut sum, Operation::Sum)?.plan("")?;
    /// let worked = plan.overlap(|progress| {
    ///     let mut steps = 0;
    ///     while steps < 1000 && !progress.advance().unwrap_or(true) {
    ///         steps += 1;
    ///     }
    ///     steps
    /// })?;
    /// assert!(worked <= 1000);
    /// # Ok(()) });
    /// ```
    pub fn overlap<R>(&mut self, work: impl FnOnce(&mut Progress<'_>) -> R) -> Result<R, Error> {
        /// Waits in any case: the buffers are in use.
        struct Wait<'p>(&'p Persistent);
        impl Drop for Wait<'_> {
            fn drop(&mut self) {
                let _ = self.0.wait();
            }
        }
        // SAFETY: the buffers are borrowed as long as the plan lives, and it is done when this returns or unwinds.
        unsafe { self.plan.start() }?;
        let wait = Wait(&self.plan);
        let result = work(&mut Progress(&self.plan));
        wait.0.wait()?;
        Ok(result)
    }
}
