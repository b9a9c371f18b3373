//! Whether the bytes of a datatype lie in the order in which they are sent, told from how it was made. No data is packed for that.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use smallvec::{SmallVec, smallvec};

use crate::functions::Handle;
use crate::types::Shape;
use crate::{Mpi, registry};

/// How datatypes are made, by the MPI's numbers.
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
    /// What is built in, and so not to be freed: by name, or by precision.
    built_in: [i64; 4],
}

impl Combiners {
    fn of(mpi: &Mpi) -> Combiners {
        let number = |name: &str| mpi.constants.must(name) as c_int as i64;
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

/// Numbers or datatypes: most datatypes are made of few.
type Few<T> = SmallVec<[T; 4]>;

/// How a datatype was made: by which function, its numbers (counts and lengths before displacements), and its datatypes.
struct Made<'a> {
    mpi: &'a Mpi,
    combiner: i64,
    numbers: Few<i64>,
    types: Few<Handle>,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let is_built_in = |made: &Envelope| self.mpi.combiners().built_in.contains(&made.combiner);
        let is_derived = |datatype| {
            !self.mpi.types().is_named(datatype)
                && !self.mpi.envelope(datatype).is_none_or(|made| is_built_in(&made))
        };
        let mut last = None;
        for datatype in &self.types {
            // Neighbours are often the same.
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

/// How a datatype was made, and how many numbers and datatypes say so.
struct Envelope {
    combiner: i64,
    integers: i64,
    addresses: i64,
    counts: i64,
    types: i64,
}

/// What is kept with a datatype whose bytes lie in order; one more where they do not.
const IN_ORDER: usize = 1;

/// Derived datatypes that are looked at, and blocks of each, before nothing is said of an order.
const MOST_TYPES: u32 = 16;
const MOST_NUMBERS: i64 = 1 << 12;

/// What is kept with a datatype is a number.
unsafe extern "C" fn keep(_of: Handle, _key: c_int, _value: *mut c_void, _extra: *mut c_void) -> c_int {
    0
}

impl Mpi {
    fn combiners(&self) -> &'static Combiners {
        static COMBINERS: OnceLock<Combiners> = OnceLock::new();
        COMBINERS.get_or_init(|| Combiners::of(self))
    }

    /// Whether the bytes of a datatype of this shape, which is whole, lie in the order in which they are sent. False where it cannot be told.
    pub fn is_in_order(&self, datatype: Handle, shape: &Shape) -> bool {
        if !shape.is_whole() || shape.size == 0 {
            return false;
        }
        if self.types().is_named(datatype) {
            return true;
        }
        self.order(datatype, &mut { MOST_TYPES })
    }

    /// The same of a derived datatype without gaps; kept with it, unless it is found as soon as it would be kept.
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
        let Some(made) = self.made(datatype, &envelope) else { return false };
        let in_order = self.ascends(&made, left);
        let Combiners { dup, contiguous, .. } = *self.combiners();
        let is_simple = [dup, contiguous].contains(&made.combiner)
            && made.types.iter().all(|part| self.types().is_named(*part));
        // What a walk has cut short is not known.
        if let Some(key) = key.filter(|_| *left > 0 && !is_simple) {
            let value = if in_order { IN_ORDER } else { IN_ORDER + 1 };
            // SAFETY: a valid handle by contract; the value is a number. If it cannot be kept, it is found again.
            unsafe { (self.f.type_set_attr)(datatype, key, value as *mut c_void) };
        }
        in_order
    }

    fn key_of_order(&self) -> Option<c_int> {
        static KEY: OnceLock<Option<c_int>> = OnceLock::new();
        *KEY.get_or_init(|| {
            let mut key = 0;
            let (copy, delete) = (registry::copy as *mut c_void, keep as *mut c_void);
            // SAFETY: callbacks with the signatures of the standard.
            let code = unsafe { (self.f.type_create_keyval)(copy, delete, &mut key, std::ptr::null_mut()) };
            (code == 0).then_some(key)
        })
    }

    fn kept_order(&self, datatype: Handle, key: c_int) -> Option<bool> {
        let (mut value, mut found): (*mut c_void, c_int) = (std::ptr::null_mut(), 0);
        // SAFETY: a valid handle by contract; MPI writes the value that was set.
        let code = unsafe { (self.f.type_get_attr)(datatype, key, (&raw mut value).cast(), &mut found) };
        (code == 0 && found != 0).then_some(value as usize == IN_ORDER)
    }

    /// How a datatype was made.
    fn envelope(&self, datatype: Handle) -> Option<Envelope> {
        let mut combiner: c_int = 0;
        if let Some(envelope) = self.extra.type_get_envelope_c {
            let [mut integers, mut addresses, mut counts, mut types] = [0i64; 4];
            // SAFETY: a valid handle by contract; each number has its place.
            let code = unsafe {
                envelope(datatype, &mut integers, &mut addresses, &mut counts, &mut types, &mut combiner)
            };
            let combiner = combiner.into();
            return (code == 0).then_some(Envelope { combiner, integers, addresses, counts, types });
        }
        let [mut integers, mut addresses, mut types] = [0; 3];
        // SAFETY: as above.
        let code = unsafe {
            (self.f.type_get_envelope)(datatype, &mut integers, &mut addresses, &mut types, &mut combiner)
        };
        (code == 0).then(|| Envelope {
            combiner: combiner.into(),
            integers: integers.into(),
            addresses: addresses.into(),
            counts: 0,
            types: types.into(),
        })
    }

    /// From what a datatype was made, unless it is built in or of very many parts.
    fn made(&self, datatype: Handle, envelope: &Envelope) -> Option<Made<'_>> {
        let Envelope { combiner, integers, addresses, counts, types } = *envelope;
        let all = [integers, addresses, counts, types];
        if self.combiners().built_in.contains(&combiner) || all.iter().any(|n| *n > MOST_NUMBERS) {
            return None;
        }
        let mut ints: Few<c_int> = smallvec![0; integers as usize];
        let mut places: Few<isize> = smallvec![0; addresses as usize];
        let mut large: Few<i64> = smallvec![0; counts as usize];
        let mut handles: Few<u64> = smallvec![0; types as usize];
        // SAFETY: a valid handle by contract, and room for as many numbers and handles as its envelope says.
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
        let numbers =
            ints.into_iter().map(i64::from).chain(places.into_iter().map(|at| at as i64)).chain(large);
        // SAFETY: handles of the family's width, as many as were asked for.
        let types =
            (0..types as usize).map(|at| unsafe { self.handle_at(handles.as_ptr().cast(), at) }).collect();
        Some(Made { mpi: self, combiner, numbers: numbers.collect(), types })
    }

    /// Whether the data of a part has no gaps and lies in order.
    fn is_ascending(&self, datatype: Handle, shape: &Shape, left: &mut u32) -> bool {
        let dense = shape.lower == 0 && shape.span == shape.size as isize;
        dense && (self.types().is_named(datatype) || self.order(datatype, left))
    }

    /// Whether the parts of a datatype lie one behind the other, each in order. That nothing lies between them its shape has told.
    fn ascends(&self, made: &Made<'_>, left: &mut u32) -> bool {
        let c = self.combiners();
        let numbers = &made.numbers;
        let mut shapes: Few<Shape> = Few::with_capacity(made.types.len());
        let mut last = None;
        for datatype in &made.types {
            // Neighbours are often the same.
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

/// Whether blocks lie one behind the other: where each begins, in bytes, how many elements it has, and of which shape.
fn follow<'a>(mut blocks: impl Iterator<Item = (i64, i64, &'a Shape)>) -> bool {
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
