//! Streams and events. Work is queued until a caller waits for it. Work of two streams on the same memory must be ordered,
//! which vector clocks check.

use crate::{
    objects::{Capture, Event, Handle, Stream, StreamPosition, VectorClock, Work, merge_clocks},
    state::{State, forbidden, state},
    status::{self, Status, done},
};
use core::ffi::c_uint;
use std::{collections::VecDeque, time::Instant};

impl State {
    /// Returns the stream of a handle, which must belong to the current context.
    pub fn stream(&mut self, handle: Handle) -> &mut Stream {
        let current = self.current();
        match self.streams.get_mut(&handle) {
            Some(stream) if stream.context == current => stream,
            Some(_) => forbidden("a stream of another context"),
            None => forbidden("a stream that was destroyed"),
        }
    }

    /// Returns true if a stream of the context is capturing.
    pub fn is_capturing(&self, context: Handle) -> bool {
        self.streams.values().any(|stream| stream.context == context && stream.capture.is_some())
    }

    /// Appends work to a stream. `named` are the allocations that it accesses. Work of other streams on them must happen
    /// before it.
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
        let (context, clock) = (stream.context, stream.clock.clone());
        let others = self.streams.iter().filter(|&(&other, stream)| other != handle && stream.context == context);
        for (other, stream) in others {
            let before = clock.get(other).copied().unwrap_or(0);
            let unordered = stream.named.iter().filter(|&&(count, _)| count > before);
            if unordered.flat_map(|(_, blocks)| blocks).any(|block| named.contains(block)) {
                forbidden("work beside other work that uses the same memory");
            }
        }
        match work {
            Work::Launch(_) => self.device().launched[0] += 1,
            Work::Graph(_) => self.device().launched[1] += 1,
            Work::CopyIn { .. } | Work::CopyOut { .. } | Work::Fill { .. } | Work::RecordEvent(_) | Work::Wait(_) => {}
        }
        let stream = self.stream(handle);
        stream.count += 1;
        if !named.is_empty() {
            stream.named.push((stream.count, named));
        }
        stream.queue.push_back(work);
        Ok(())
    }

    /// Executes the work of a stream up to a position.
    fn run_until(&mut self, until: StreamPosition) -> Result<(), Status> {
        // A destroyed stream has executed all of its work.
        while let Some(stream) = self.streams.get_mut(&until.stream) {
            if stream.done >= until.count {
                break;
            }
            let context = stream.context;
            let Some(work) = stream.queue.pop_front() else { break };
            stream.done += 1;
            if let Some(error) = self.contexts[&context].sticky_error {
                return Err(error);
            }
            if let Err(error) = self.execute_work(work, context) {
                if let Some(context) = self.contexts.get_mut(&context) {
                    context.sticky_error = Some(error);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn execute_work(&mut self, work: Work, context: Handle) -> Result<(), Status> {
        match work {
            Work::Launch(launch) => self.run_kernel(&launch, context)?,
            Work::Graph(launches) => launches.iter().try_for_each(|launch| self.run_kernel(launch, context))?,
            // SAFETY: device memory was allocated when the work was enqueued, and freeing it waits for the work. The
            // caller guarantees the memory of the host.
            Work::CopyIn { from, to, bytes } => unsafe {
                (to as *mut u8).copy_from_nonoverlapping(from as *const u8, bytes);
            },
            // SAFETY: as above.
            Work::CopyOut { from, to, bytes } => unsafe {
                (to as *mut u8).copy_from_nonoverlapping(from as *const u8, bytes);
            },
            // SAFETY: as above.
            Work::Fill { to, value, bytes } => unsafe { (to as *mut u8).write_bytes(value, bytes) },
            Work::RecordEvent(event) => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.at = Some(Instant::now());
                }
            }
            Work::Wait(position) => self.run_until(position)?,
        }
        Ok(())
    }

    /// Waits for a stream. Everything enqueued later happens after its work.
    fn wait(&mut self, handle: Handle) -> Result<(), Status> {
        let context = self.entered()?;
        let stream = self.stream(handle);
        if let Some(capture) = &mut stream.capture {
            capture.invalid = true;
            return Err(status::CAPTURE_UNSUPPORTED);
        }
        let until = StreamPosition { stream: handle, count: stream.count };
        self.run_until(until)?;
        let mut clock = self.stream(handle).clock.clone();
        clock.insert(handle, until.count);
        self.order_streams_after(context, &clock);
        Ok(())
    }

    /// Orders all streams of a context after the work of a clock.
    fn order_streams_after(&mut self, context: Handle, clock: &VectorClock) {
        for stream in self.streams.values_mut().filter(|stream| stream.context == context) {
            merge_clocks(&mut stream.clock, clock);
        }
        for (handle, stream) in &mut self.streams {
            let before = clock.get(handle).copied().unwrap_or(0);
            stream.named.retain(|&(count, _)| count > before);
        }
    }

    /// Waits for all streams of a context, except for captured work.
    pub fn finish(&mut self, context: Handle) -> Result<(), Status> {
        let streams = self.streams.iter().filter(|(_, stream)| stream.context == context);
        let positions: Vec<_> =
            streams.map(|(&stream, Stream { count, .. })| StreamPosition { stream, count: *count }).collect();
        positions.iter().try_for_each(|&position| self.run_until(position))?;
        self.order_streams_after(
            context,
            &positions.iter().map(|position| (position.stream, position.count)).collect(),
        );
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
            clock: VectorClock::new(),
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
    // Waiting for an event that was never recorded does nothing.
    let Some((position, clock)) = state.event(event).recorded.clone() else { return status::SUCCESS };
    done(state.enqueue(stream, Work::Wait(position), vec![]).map(|()| {
        let stream = state.stream(stream);
        merge_clocks(&mut stream.clock, &clock);
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
    done(state.enqueue(stream, Work::RecordEvent(event), vec![]).map(|()| {
        let Stream { count, clock, .. } = state.stream(stream);
        let mut clock = clock.clone();
        clock.insert(stream, *count);
        let position = StreamPosition { stream, count: *count };
        state.event(event).recorded = Some((position, clock));
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> Status {
    let mut state = state();
    done(state.entered().and_then(|context| {
        let Some((position, clock)) = state.event(event).recorded.clone() else { return Ok(()) };
        state.run_until(position)?;
        state.order_streams_after(context, &clock);
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
