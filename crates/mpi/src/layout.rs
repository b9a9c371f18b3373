//! Determines from the construction of a datatype whether its bytes lie in memory in the order in which they are sent. No data is packed
//! for this.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use smallvec::{SmallVec, smallvec};

use crate::functions::Handle;
use crate::types::TypeLayout;
use crate::{Mpi, registry};

/// The MPI's constants for the combiners: the ways to construct a datatype.
#[derive(Clone, Copy, Debug)]
struct Combiners {
    dup: i64,
    contiguous: i64,
    vector: i64,
    hvector: i64,
    indexed: i64,
    hindexed: i64,
    indexed_block: i64,
    hindexed_block: i64,
    structure: i64,
    resized: i64,
    /// Combiners of predefined datatypes, which must not be freed: of named datatypes, and of Fortran datatypes given by precision.
    built_in: [i64; 4],
}

impl Combiners {
    fn of(mpi: &Mpi) -> Combiners {
        let number = |name: &str| mpi.constants.required(name) as c_int as i64;
        Combiners {
            dup: number("MPI_COMBINER_DUP"),
            contiguous: number("MPI_COMBINER_CONTIGUOUS"),
            vector: number("MPI_COMBINER_VECTOR"),
            hvector: number("MPI_COMBINER_HVECTOR"),
            indexed: number("MPI_COMBINER_INDEXED"),
            hindexed: number("MPI_COMBINER_HINDEXED"),
            indexed_block: number("MPI_COMBINER_INDEXED_BLOCK"),
            hindexed_block: number("MPI_COMBINER_HINDEXED_BLOCK"),
            structure: number("MPI_COMBINER_STRUCT"),
            resized: number("MPI_COMBINER_RESIZED"),
            built_in: ["NAMED", "F90_REAL", "F90_COMPLEX", "F90_INTEGER"]
                .map(|name| number(&format!("MPI_COMBINER_{name}"))),
        }
    }
}

/// A list that is stored inline if it is short, as it mostly is, because most datatypes consist of few components.
type Few<T> = SmallVec<[T; 4]>;

/// Construction of a datatype: its combiner, its integers (counts and lengths before displacements), and its component datatypes.
struct Construction<'a> {
    mpi: &'a Mpi,
    combiner: i64,
    numbers: Few<i64>,
    types: Few<Handle>,
}

impl Drop for Construction<'_> {
    fn drop(&mut self) {
        let is_built_in = |made: &Envelope| self.mpi.combiners().built_in.contains(&made.combiner);
        let is_derived = |datatype| {
            !self.mpi.types().is_named(datatype) && !self.mpi.envelope(datatype).is_none_or(|made| is_built_in(&made))
        };
        let mut last = None;
        for datatype in &self.types {
            // Neighbouring components often have the same datatype.
            let (_, is_derived) = *match &last {
                Some(last @ (same, _)) if same == datatype => last,
                _ => last.insert((*datatype, is_derived(*datatype))),
            };
            if is_derived {
                self.mpi.free_type(*datatype);
            }
        }
    }
}

/// Combiner of a datatype, and the lengths of the lists that describe its construction.
struct Envelope {
    combiner: i64,
    integers: i64,
    addresses: i64,
    counts: i64,
    types: i64,
}

/// Value of our attribute of a datatype whose bytes lie in the order in which they are sent. If they do not, the value is `IN_ORDER + 1`.
const IN_ORDER: usize = 1;

/// Maximum number of derived datatypes that are examined, and (`MOST_NUMBERS`) of list entries of each. Beyond that the order counts as
/// unknown.
const MOST_TYPES: u32 = 16;
const MOST_NUMBERS: i64 = 1 << 12;

/// Callback with which MPI deletes the attribute. Its value is a plain number, so there is nothing to free.
unsafe extern "C" fn keep(_of: Handle, _key: c_int, _value: *mut c_void, _extra: *mut c_void) -> c_int {
    0
}

impl Mpi {
    fn combiners(&self) -> &'static Combiners {
        static COMBINERS: OnceLock<Combiners> = OnceLock::new();
        COMBINERS.get_or_init(|| Combiners::of(self))
    }

    /// Returns whether the bytes of a datatype with memory layout `shape` lie in the order in which they are sent. False if the datatype
    /// has gaps, or if the order is unknown.
    pub fn is_in_order(&self, datatype: Handle, shape: &TypeLayout) -> bool {
        if !shape.has_no_gaps() || shape.size == 0 {
            return false;
        }
        if self.types().is_named(datatype) {
            return true;
        }
        self.order(datatype, &mut { MOST_TYPES })
    }

    /// Returns whether the bytes of a derived datatype without gaps lie in the order in which they are sent. Examines at most `left`
    /// further datatypes. The result is cached as an attribute of the datatype, unless it takes no longer to determine it again.
    fn order(&self, datatype: Handle, left: &mut u32) -> bool {
        let key = self.key_of_order();
        if let Some(known) = key.and_then(|key| self.kept_order(datatype, key)) {
            return known;
        }
        *left = left.saturating_sub(1);
        if *left == 0 {
            return false;
        }
        let Some(envelope) = self.envelope(datatype) else { return false };
        let Some(made) = self.construction(datatype, &envelope) else { return false };
        let in_order = self.ascends(&made, left);
        let Combiners { dup, contiguous, .. } = *self.combiners();
        let is_simple =
            [dup, contiguous].contains(&made.combiner) && made.types.iter().all(|part| self.types().is_named(*part));
        // The result is not cached if the limit on the number of datatypes was reached.
        if let Some(key) = key.filter(|_| *left > 0 && !is_simple) {
            let value = if in_order { IN_ORDER } else { IN_ORDER + 1 };
            // SAFETY: the handle is valid by contract; the value is a number. If it cannot be cached, it is determined again later.
            unsafe { (self.f.type_set_attr)(datatype, key, value as *mut c_void) };
        }
        in_order
    }

    fn key_of_order(&self) -> Option<c_int> {
        static KEY: OnceLock<Option<c_int>> = OnceLock::new();
        *KEY.get_or_init(|| {
            let mut key = 0;
            let (copy, delete) = (registry::copy as *mut c_void, keep as *mut c_void);
            // SAFETY: the callbacks have the signatures of the standard.
            let code = unsafe { (self.f.type_create_keyval)(copy, delete, &mut key, std::ptr::null_mut()) };
            (code == 0).then_some(key)
        })
    }

    fn kept_order(&self, datatype: Handle, key: c_int) -> Option<bool> {
        let (mut value, mut found): (*mut c_void, c_int) = (std::ptr::null_mut(), 0);
        // SAFETY: the handle is valid by contract; MPI writes the value that `order` has set.
        let code = unsafe { (self.f.type_get_attr)(datatype, key, (&raw mut value).cast(), &mut found) };
        (code == 0 && found != 0).then_some(value as usize == IN_ORDER)
    }

    /// Returns the combiner of a datatype, and the lengths of the lists that describe its construction.
    fn envelope(&self, datatype: Handle) -> Option<Envelope> {
        let mut combiner: c_int = 0;
        if let Some(envelope) = self.extra.type_get_envelope_c {
            let [mut integers, mut addresses, mut counts, mut types] = [0i64; 4];
            // SAFETY: the handle is valid by contract; MPI writes each result to a variable of its own.
            let code =
                unsafe { envelope(datatype, &mut integers, &mut addresses, &mut counts, &mut types, &mut combiner) };
            let combiner = combiner.into();
            return (code == 0).then_some(Envelope { combiner, integers, addresses, counts, types });
        }
        let [mut integers, mut addresses, mut types] = [0; 3];
        // SAFETY: the handle is valid by contract; MPI writes each result to a variable of its own.
        let code =
            unsafe { (self.f.type_get_envelope)(datatype, &mut integers, &mut addresses, &mut types, &mut combiner) };
        (code == 0).then(|| Envelope {
            combiner: combiner.into(),
            integers: integers.into(),
            addresses: addresses.into(),
            counts: 0,
            types: types.into(),
        })
    }

    /// Returns the construction of a datatype, or `None` if the datatype is predefined or its lists are too long.
    fn construction(&self, datatype: Handle, envelope: &Envelope) -> Option<Construction<'_>> {
        let Envelope { combiner, integers, addresses, counts, types } = *envelope;
        let all = [integers, addresses, counts, types];
        if self.combiners().built_in.contains(&combiner) || all.iter().any(|n| *n > MOST_NUMBERS) {
            return None;
        }
        let mut ints: Few<c_int> = smallvec![0; integers as usize];
        let mut places: Few<isize> = smallvec![0; addresses as usize];
        let mut large: Few<i64> = smallvec![0; counts as usize];
        let mut handles: Few<u64> = smallvec![0; types as usize];
        // SAFETY: the handle is valid by contract, and the lists have the lengths that its envelope gives.
        let code = unsafe {
            match self.extra.type_get_contents_c {
                Some(contents) => contents(
                    datatype,
                    integers,
                    addresses,
                    counts,
                    types,
                    ints.as_mut_ptr(),
                    places.as_mut_ptr(),
                    large.as_mut_ptr(),
                    handles.as_mut_ptr().cast(),
                ),
                None => (self.f.type_get_contents)(
                    datatype,
                    integers as c_int,
                    addresses as c_int,
                    types as c_int,
                    ints.as_mut_ptr(),
                    places.as_mut_ptr(),
                    handles.as_mut_ptr().cast(),
                ),
            }
        };
        if code != 0 {
            return None;
        }
        let numbers = ints.into_iter().map(i64::from).chain(places.into_iter().map(|at| at as i64)).chain(large);
        // SAFETY: MPI has written `types` handles of the family's width.
        let types = (0..types as usize).map(|at| unsafe { self.handle_at(handles.as_ptr().cast(), at) }).collect();
        Some(Construction { mpi: self, combiner, numbers: numbers.collect(), types })
    }

    /// Returns whether the data of a component datatype has no gaps and lies in the order in which it is sent.
    fn is_ascending(&self, datatype: Handle, shape: &TypeLayout, left: &mut u32) -> bool {
        let dense = shape.lower == 0 && shape.span == shape.size as isize;
        dense && (self.types().is_named(datatype) || self.order(datatype, left))
    }

    /// Returns whether the components of a datatype lie in memory one after the other, each with its bytes in order. The caller has
    /// checked with the memory layout of the datatype that there are no gaps between components.
    fn ascends(&self, made: &Construction<'_>, left: &mut u32) -> bool {
        let c = self.combiners();
        let numbers = &made.numbers;
        let mut shapes: Few<TypeLayout> = Few::with_capacity(made.types.len());
        let mut last = None;
        for datatype in &made.types {
            // Neighbouring components often have the same datatype.
            if let (true, Some(shape)) = (last == Some(*datatype), shapes.last().copied()) {
                shapes.push(shape);
                continue;
            }
            let Ok(shape) = self.bounds(*datatype) else { return false };
            if shape.size > 0 && !self.is_ascending(*datatype, &shape, left) {
                return false;
            }
            last = Some(*datatype);
            shapes.push(shape);
        }
        let Some(first) = shapes.first() else { return false };
        let extent = first.extent as i64;
        let (count, rest) = match numbers.split_first() {
            Some((count, rest)) => (*count, rest),
            None => (0, &numbers[..]),
        };
        let places = |from: usize| rest.get(from..).unwrap_or_default().iter();
        match made.combiner {
            how if how == c.dup || how == c.resized => true,
            how if how == c.contiguous => follow([(0, count, first)].into_iter()),
            how if how == c.vector || how == c.hvector => {
                let (Some(length), Some(stride)) = (rest.first(), rest.get(1)) else { return false };
                let stride = if how == c.vector { stride * extent } else { *stride };
                (*length == 1 || extent == first.size as i64) && (count == 1 || stride >= length * extent)
            }
            how if how == c.indexed || how == c.hindexed => {
                let unit = if how == c.indexed { extent } else { 1 };
                let blocks = rest.iter().zip(places(count as usize)).take(count as usize);
                follow(blocks.map(|(length, at)| (at * unit, *length, first)))
            }
            how if how == c.indexed_block || how == c.hindexed_block => {
                let unit = if how == c.indexed_block { extent } else { 1 };
                let Some(length) = rest.first() else { return false };
                follow(places(1).map(|at| (at * unit, *length, first)))
            }
            how if how == c.structure => {
                let blocks = rest.iter().zip(places(count as usize)).zip(&shapes).take(count as usize);
                follow(blocks.map(|((length, at), shape)| (*at, *length, shape)))
            }
            _ => false,
        }
    }
}

/// Returns whether blocks of elements lie in memory one after the other. A block is given by its offset in bytes, its number of elements,
/// and the memory layout of an element.
fn follow<'a>(mut blocks: impl Iterator<Item = (i64, i64, &'a TypeLayout)>) -> bool {
    let mut end = i64::MIN;
    blocks.all(|(at, length, shape)| {
        if length == 0 || shape.size == 0 {
            return true;
        }
        let follows = at >= end && (length == 1 || shape.extent == shape.size as isize);
        end = at + (length - 1) * shape.extent as i64 + shape.size as i64;
        follows
    })
}
