//! A collective with its buffers, which can be run, compared with other implementations, or planned.

use std::ffi::c_int;
use std::marker::PhantomData;

use bruckner_engine::call::{Call, Lists};
use bruckner_engine::mpi::{ExternalCollectives, MpiError};
use bruckner_engine::{Engine, EntryPoint, Error, Mpi};

/// A persistent collective of the MPI of this process.
type Persistent = bruckner_engine::Persistent<Mpi>;

/// A collective with its buffers. It is run, or planned for repeated use, by its methods; until then nothing is communicated.
#[must_use = "nothing happens until it is run or planned"]
pub struct Collective<'a> {
    engine: &'static Engine<Mpi>,
    comm: u64,
    call: Call,
    /// Plans made by [`Collective::add_plan`], in the order of their numbers.
    plans: Vec<Persistent>,
    lists: Lists,
    buffers: PhantomData<&'a mut ()>,
}

impl<'a> Collective<'a> {
    /// Creates a collective on a communicator. The caller has checked the lengths of the buffers against the counts.
    pub(crate) fn new(engine: &'static Engine<Mpi>, comm: u64, call: Call, lists: Lists) -> Collective<'a> {
        Collective { engine, comm, call, plans: Vec::new(), lists, buffers: PhantomData }
    }

    /// Runs the collective once. Collective over the communicator.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// world.barrier()?.run()?;
    /// # Ok(()) });
    /// ```
    pub fn run(&mut self) -> Result<(), Error> {
        let (engine, comm) = (self.engine, self.comm);
        // SAFETY: the caller of `new` has checked the buffer lengths against the counts.
        let code = match unsafe { engine.run_cached(&self.call, comm) } {
            Some(again) => again?,
            // SAFETY: as above.
            None => unsafe { engine.run(&self.call, comm, EntryPoint::Api) }?,
        };
        self.check_code(code)
    }

    /// Runs the collective with the MPI's own function, regardless of the library's choice. Collective over the communicator.
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
        // SAFETY: the caller of `new` has checked the buffer lengths against the counts.
        self.check_code(unsafe { self.engine.native(&self.call, self.comm) })
    }

    /// Runs the collective with the function of another library. Collective over the communicator.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let other = "/opt/other/libcollectives.so";
    /// // SAFETY: the functions of this library are those that MPI specifies.
    /// if let Ok(external) = unsafe { bruckner::ExternalCollectives::load(other.as_ref()) } {
    ///     world.barrier()?.run_with(&external)?;
    /// }
    /// # Ok(()) });
    /// ```
    pub fn run_with(&mut self, external: &ExternalCollectives) -> Result<(), Error> {
        // SAFETY: the caller of `new` has checked the buffer lengths against the counts.
        unsafe { self.engine.run_external(external, &self.call, self.comm) }
    }

    /// Converts the return code of an MPI function to a result.
    fn check_code(&self, code: c_int) -> Result<(), Error> {
        match code {
            0 => Ok(()),
            code => Err(Error::Mpi(MpiError { call: self.call.function.name(), code })),
        }
    }

    /// Adds a plan that uses `algorithm`, and returns its number for [`Collective::run_plan`]. If the algorithm is not applicable, returns
    /// an error and adds nothing. Collective over the communicator.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut sum = [0];
    /// let mut sums = world.allreduce(&[1], &mut sum, Operation::Sum)?;
    /// for algorithm in ["recursive-doubling", "native"] {
    ///     // An algorithm may not be applicable, for example on a single rank.
    ///     if let Ok(number) = sums.add_plan(algorithm) {
    ///         sums.run_plan(number)?;
    ///     }
    /// }
    /// # Ok(()) });
    /// ```
    pub fn add_plan(&mut self, algorithm: &str) -> Result<usize, Error> {
        // SAFETY: buffers and lists live as long as `self`, which owns the plan.
        let plan = unsafe { self.engine.persistent(self.call, self.comm, algorithm) }?;
        self.plans.push(plan);
        Ok(self.plans.len() - 1)
    }

    /// Runs the plan with the number that [`Collective::add_plan`] returned. Plans with several algorithms can use the same buffers.
    /// Collective over the communicator.
    ///
    /// # Panics
    /// If `number` is not one that [`Collective::add_plan`] has returned.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut sum = [0];
    /// let mut sums = world.allreduce(&[1], &mut sum, Operation::Sum)?;
    /// let native = sums.add_plan("native")?;
    /// sums.run_plan(native)?;
    /// drop(sums);
    /// assert_eq!(sum[0], world.size()?);
    /// # Ok(()) });
    /// ```
    pub fn run_plan(&mut self, number: usize) -> Result<(), Error> {
        // SAFETY: the buffers are borrowed as long as `self` lives, and no other code uses them until this call returns.
        unsafe { self.plans[number].run() }
    }

    /// Makes a plan of the collective that uses `algorithm`. If it is an empty string, the library chooses the algorithm. Collective over
    /// the communicator.
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
        // SAFETY: the plan owns the lists and borrows the buffers, so they live as long as it does.
        let plan = unsafe { engine.persistent(call, comm, algorithm) }?;
        Ok(Plan { plan, _lists: lists, _buffers: buffers })
    }
}

/// A planned collective, which borrows its buffers until it is dropped.
pub struct Plan<'a> {
    plan: Persistent,
    _lists: Lists,
    _buffers: PhantomData<&'a mut ()>,
}

/// Handle that advances a started plan.
pub struct Progress<'p>(&'p Persistent);

impl Progress<'_> {
    /// Advances the plan as far as possible without waiting. Returns whether the plan is done.
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
    /// Whether the plan uses the MPI's own collective.
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

    /// Runs the plan once. Collective over the communicator.
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

    /// Starts the plan, calls `work`, and waits until the plan is done. `work` may advance the plan by [`Progress::advance`]; while it
    /// waits in another collective of this library, the plan advances as well. Collective over the communicator.
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
        /// Waits for the plan on drop, even if `work` panics, because the plan uses the buffers until it is done.
        struct Wait<'p>(&'p Persistent);
        impl Drop for Wait<'_> {
            fn drop(&mut self) {
                let _ = self.0.wait();
            }
        }
        // SAFETY: the buffers are borrowed as long as the plan lives, and the plan is done when this function returns or unwinds.
        unsafe { self.plan.start() }?;
        let wait = Wait(&self.plan);
        let result = work(&mut Progress(&self.plan));
        wait.0.wait()?;
        Ok(result)
    }
}
