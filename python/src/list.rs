//! [`List`]: values in the order in which they were put, with the interface of `collections.deque`.

use std::sync::Mutex;

use bytes::Bytes;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stratakv::End;

use crate::args::Input;
use crate::errors::{raise, run, usage};
use crate::scan::Fetched;

/// A list of values in the store, in the order in which they were put.
///
/// Any number of threads, and of processes after one another, may use it as a queue.
#[pyclass(frozen, module = "stratakv")]
pub struct List {
    list: stratakv::List,
    name: String,
}

/// A running iteration over a list. An element that cannot be read raises in its place.
#[pyclass(frozen, module = "stratakv")]
pub struct Elements {
    fetched: Mutex<Fetched<stratakv::Elements>>,
}

impl List {
    /// The list of that name.
    pub fn new(list: stratakv::List, name: &str) -> List {
        List { list, name: name.to_owned() }
    }

    /// The list, for batches and transactions.
    pub fn inner(&self) -> &stratakv::List {
        &self.list
    }

    fn popped<'py>(&self, py: Python<'py>, end: End) -> PyResult<Bound<'py, PyBytes>> {
        let value = run(py, || self.list.pop(end))?;
        value.map(|value| PyBytes::new(py, &value)).ok_or_else(|| PyIndexError::new_err("pop from an empty list"))
    }

    /// The element at an index as it is now.
    fn position(&self, py: Python<'_>, index: i64) -> PyResult<stratakv::Position> {
        run(py, || self.list.position(index))?.ok_or_else(|| out_of_range(index))
    }
}

fn out_of_range(index: i64) -> PyErr {
    PyIndexError::new_err(format!("the list has no element {index}"))
}

fn end(left: bool) -> End {
    if left { End::Front } else { End::Back }
}

#[pymethods]
impl List {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Puts an element behind the last one; returns when it is durable.
    #[pyo3(signature = (value, /))]
    fn append(&self, py: Python<'_>, value: Input) -> PyResult<()> {
        run(py, || self.list.push_back(&value)).map(drop)
    }

    /// Puts an element before the first one.
    #[pyo3(signature = (value, /))]
    fn appendleft(&self, py: Python<'_>, value: Input) -> PyResult<()> {
        run(py, || self.list.push_front(&value)).map(drop)
    }

    /// Puts elements behind the last one, all or none. At most 64 MiB.
    #[pyo3(signature = (values, /))]
    fn extend(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let values = values.try_iter()?.map(|value| value?.extract::<Input>()).collect::<PyResult<Vec<_>>>()?;
        run(py, || self.list.push_all(End::Back, &values))
    }

    /// Removes and returns the last element. IndexError if there is none.
    fn pop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.popped(py, End::Back)
    }

    /// Removes and returns the first element. IndexError if there is none.
    fn popleft<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.popped(py, End::Front)
    }

    /// Removes and returns up to `count` elements, all or none, from the front, or with left=False
    /// from the back; the one next to that end comes first.
    #[pyo3(signature = (count, /, *, left=true))]
    fn pop_many<'py>(&self, py: Python<'py>, count: usize, left: bool) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let values = run(py, || self.list.pop_many(end(left), count))?;
        Ok(values.iter().map(|value| PyBytes::new(py, value)).collect())
    }

    /// Moves the first element (the last, without from_left) to the back of another list (to its
    /// front, with to_left), as one: at no time is it in both or in neither. None if there is none.
    #[pyo3(signature = (to, /, *, from_left=true, to_left=false))]
    fn move_to<'py>(
        &self,
        py: Python<'py>,
        to: &Bound<'py, List>,
        from_left: bool,
        to_left: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let to = &to.get().list;
        let moved = run(py, || self.list.move_to(end(from_left), to, end(to_left)))?;
        Ok(moved.map(|value| PyBytes::new(py, &value)))
    }

    /// Puts an element before the one at `index`, as list.insert does: beyond an end, at that end.
    #[pyo3(signature = (index, value, /))]
    fn insert(&self, py: Python<'_>, index: i64, value: Input) -> PyResult<()> {
        // Where it is then, counted from the end that the index counts from.
        let then = if index < 0 { index.saturating_sub(1) } else { index };
        let beyond = end(index < 0);
        run(py, || match self.list.insert_at(then, &value)? {
            Some(_) => Ok(()),
            None => self.list.push(beyond, &value).map(drop),
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = run(py, || self.list.len())?;
        usize::try_from(count).map_err(|_| usage("more elements than this machine can count"))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!run(py, || self.list.is_empty())?)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: i64) -> PyResult<Bound<'py, PyBytes>> {
        let value = run(py, || self.list.get(index))?;
        value.map(|value| PyBytes::new(py, &value)).ok_or_else(|| out_of_range(index))
    }

    fn __setitem__(&self, py: Python<'_>, index: i64, value: Input) -> PyResult<()> {
        loop {
            let position = self.position(py, index)?;
            // Else somebody else has just removed it, and another element has its index.
            if run(py, || self.list.replace(&position, &value))?.is_some() {
                return Ok(());
            }
        }
    }

    fn __delitem__(&self, py: Python<'_>, index: i64) -> PyResult<()> {
        loop {
            let position = self.position(py, index)?;
            if run(py, || self.list.erase(&position))? {
                return Ok(());
            }
        }
    }

    fn __iter__(&self) -> Elements {
        Elements { fetched: Fetched::new(self.list.iter()) }
    }

    fn __reversed__(&self) -> Elements {
        Elements { fetched: Fetched::new(self.list.iter_back()) }
    }

    fn __repr__(&self) -> String {
        format!("<stratakv.List {:?}>", self.name)
    }
}

type Item = Result<stratakv::Element, stratakv::Error>;

#[pymethods]
impl Elements {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let len_bytes = |item: &Item| item.as_ref().map_or(0, |element| element.value.len());
        let next = Fetched::next_of(&self.fetched, py, len_bytes).transpose().map_err(raise)?;
        Ok(next.map(|element: stratakv::Element| PyBytes::new(py, &element.value)))
    }
}

/// The element that an end of a list gave, as Python's bytes.
pub fn element(py: Python<'_>, value: Option<Bytes>) -> Option<Bound<'_, PyBytes>> {
    value.map(|value| PyBytes::new(py, &value))
}
