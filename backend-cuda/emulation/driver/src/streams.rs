//! Streams and events: work waits on its stream until somebody waits for it, and what two streams do with the same
//! memory must be ordered.

use crate::{
    objects::{Capture, Event, Handle, Known, Point, Stream, Work, merge},
    state::{State, forbidden, state},
    status::{self, Status, done},
};
use core::ffi::c_uint;
use std::{collections::VecDeque, time::Instant};

impl State {
    /// The stream of a handle, which lives, in the current context.
    pub fn stream(&mut self, handle: Handle) -> &mut Stream {
        let current = self.current();
        match self.streams.get_mut(&handle) {
            Some(stream) if stream.context == current => stream,
            Some(_) => forbidden("a stream of another context"),
            None => forbidden("a stream that was destroyed"),
        }
    }

    /// Whether a context records something.
    pub fn is_capturing(&self, context: Handle) -> bool {
        self.streams.values().any(|stream| stream.context == context && stream.capture.is_some())
    }

    /// Puts work behind what a stream has. `named` are the blocks that it uses; what other streams do with them must be
    /// known to come before.
    pub fn enqueue(&mut self, handle: Handle, work: Work, named: Vec<u64>) -> Result<(), Status> {
        self.entered()?;
        let stream = self.stream(handle);
        if let Some(capture) = &mut stream.capture {
            let Work::Launch(launch) = work else {
                capture.invalid = true;
                return Err(status::CAPTURE_UNSUPPORTED);
            };
            capture.launches.push(launch);
            return Ok(());
        }
        let (context, known) = (stream.context, stream.known.clone());
        let others = self.streams.iter().filter(|&(&other, stream)| other != handle && stream.context == context);
        for (other, stream) in others {
            let before = known.get(other).copied().unwrap_or(0);
            let unordered = stream.named.iter().filter(|&&(count, _)| count > before);
            if unordered.flat_map(|(_, blocks)| blocks).any(|block| named.contains(block)) {
                forbidden("work beside other work that uses the same memory");
            }
        }
        match work {
            Work::Launch(_) => self.device().launched[0] += 1,
            Work::Graph(_) => self.device().launched[1] += 1,
            Work::CopyIn { .. } | Work::CopyOut { .. } | Work::Fill { .. } | Work::Stamp(_) | Work::Wait(_) => {}
        }
        let stream = self.stream(handle);
        stream.count += 1;
        if !named.is_empty() {
            stream.named.push((stream.count, named));
        }
        stream.queue.push_back(work);
        Ok(())
    }

    /// Does a stream's work up to a place.
    fn run(&mut self, until: Point) -> Result<(), Status> {
        // A stream that is no more has done all of its work.
        while let Some(stream) = self.streams.get_mut(&until.stream) {
            if stream.done >= until.count {
                break;
            }
            let context = stream.context;
            let Some(work) = stream.queue.pop_front() else { break };
            stream.done += 1;
            if let Some(error) = self.contexts[&context].lost {
                return Err(error);
            }
            if let Err(error) = self.perform(work, context) {
                if let Some(context) = self.contexts.get_mut(&context) {
                    context.lost = Some(error);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn perform(&mut self, work: Work, context: Handle) -> Result<(), Status> {
        match work {
            Work::Launch(launch) => self.run_kernel(&launch, context)?,
            Work::Graph(launches) => launches.iter().try_for_each(|launch| self.run_kernel(launch, context))?,
            // SAFETY: device memory was there when the work was enqueued, and freeing it waits for work; of the host's
            // memory the caller says so.
            Work::CopyIn { from, to, bytes } => unsafe {
                (to as *mut u8).copy_from_nonoverlapping(from as *const u8, bytes);
            },
            // SAFETY: as above.
            Work::CopyOut { from, to, bytes } => unsafe {
                (to as *mut u8).copy_from_nonoverlapping(from as *const u8, bytes);
            },
            // SAFETY: as above.
            Work::Fill { to, value, bytes } => unsafe { (to as *mut u8).write_bytes(value, bytes) },
            Work::Stamp(event) => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.at = Some(Instant::now());
                }
            }
            Work::Wait(point) => self.run(point)?,
        }
        Ok(())
    }

    /// Waits for a stream. What anybody enqueues later comes after all of its work.
    fn wait(&mut self, handle: Handle) -> Result<(), Status> {
        let context = self.entered()?;
        let stream = self.stream(handle);
        if let Some(capture) = &mut stream.capture {
            capture.invalid = true;
            return Err(status::CAPTURE_UNSUPPORTED);
        }
        let until = Point { stream: handle, count: stream.count };
        self.run(until)?;
        let mut known = self.stream(handle).known.clone();
        known.insert(handle, until.count);
        self.is_known(context, &known);
        Ok(())
    }

    /// All streams of a context come after what is known.
    fn is_known(&mut self, context: Handle, known: &Known) {
        for stream in self.streams.values_mut().filter(|stream| stream.context == context) {
            merge(&mut stream.known, known);
        }
        for (handle, stream) in &mut self.streams {
            let before = known.get(handle).copied().unwrap_or(0);
            stream.named.retain(|&(count, _)| count > before);
        }
    }

    /// Waits for all streams of a context, but for what they only record.
    pub fn finish(&mut self, context: Handle) -> Result<(), Status> {
        let streams = self.streams.iter().filter(|(_, stream)| stream.context == context);
        let points: Vec<_> = streams.map(|(&stream, Stream { count, .. })| Point { stream, count: *count }).collect();
        points.iter().try_for_each(|&point| self.run(point))?;
        self.is_known(context, &points.iter().map(|point| (point.stream, point.count)).collect());
        Ok(())
    }

    fn event(&mut self, handle: Handle) -> &mut Event {
        let current = self.current();
        match self.events.get_mut(&handle) {
            Some(event) if event.context == current => event,
            Some(_) => forbidden("an event of another context"),
            None => forbidden("an event that was destroyed"),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) -> Status {
    let mut state = state();
    done(state.entered().map(|context| {
        let handle = state.handle();
        let made = Stream {
            context,
            queue: VecDeque::new(),
            count: 0,
            done: 0,
            known: Known::new(),
            named: vec![],
            capture: None,
        };
        state.streams.insert(handle, made);
        // SAFETY: the caller's memory.
        unsafe { stream.write(handle) };
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Status {
    let mut state = state();
    let result = state.wait(stream);
    state.streams.remove(&stream);
    done(result)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> Status {
    done(state().wait(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> Status {
    let mut state = state();
    // Nobody waits for an event that was never recorded.
    let Some((point, known)) = state.event(event).recorded.clone() else { return status::SUCCESS };
    done(state.enqueue(stream, Work::Wait(point), vec![]).map(|()| {
        let stream = state.stream(stream);
        merge(&mut stream.known, &known);
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: Handle, _mode: c_uint) -> Status {
    let mut state = state();
    done(state.entered().and_then(|_| match &mut state.stream(stream).capture {
        Some(_) => Err(status::CAPTURE_UNSUPPORTED),
        none => {
            *none = Some(Capture::default());
            Ok(())
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: Handle, status: *mut c_uint) -> Status {
    let captured = match &state().stream(stream).capture {
        None => 0,
        Some(Capture { invalid: false, .. }) => 1,
        Some(Capture { invalid: true, .. }) => 2,
    };
    // SAFETY: the caller's memory.
    unsafe { status.write(captured) };
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut Handle, _flags: c_uint) -> Status {
    let mut state = state();
    done(state.entered().map(|context| {
        let handle = state.handle();
        state.events.insert(handle, Event { context, recorded: None, at: None });
        // SAFETY: the caller's memory.
        unsafe { event.write(handle) };
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Status {
    let mut state = state();
    state.event(event);
    done(state.enqueue(stream, Work::Stamp(event), vec![]).map(|()| {
        let Stream { count, known, .. } = state.stream(stream);
        let mut known = known.clone();
        known.insert(stream, *count);
        let point = Point { stream, count: *count };
        state.event(event).recorded = Some((point, known));
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> Status {
    let mut state = state();
    done(state.entered().and_then(|context| {
        let Some((point, known)) = state.event(event).recorded.clone() else { return Ok(()) };
        state.run(point)?;
        state.is_known(context, &known);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: Handle, end: Handle) -> Status {
    let mut state = state();
    let (Some(start), Some(end)) = (state.event(start).at, state.event(end).at) else { return status::INVALID_VALUE };
    // SAFETY: the caller's memory.
    unsafe { milliseconds.write(1e3 * end.saturating_duration_since(start).as_secs_f32()) };
    status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> Status {
    let mut state = state();
    state.event(event);
    state.events.remove(&event);
    status::SUCCESS
}
