/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * The nesting logic of the counting methods, in bcc's dialect; both of them run
 * this text and differ only in what calls enter() and leave().
 *
 * Nesting is by thread and by entry and return of the update function: flush
 * and invalidate count only while their thread is inside it. A leaf (flush or
 * invalidate) that is called by another leaf is part of that one.
 *
 * Defined by the loader: FILTER (1: only watched processes), BARRIER_FLAGS,
 * FROM_MODULE (1: fed by vmmprof_probe's tracepoints, 0: by kprobe events).
 */
#include <uapi/linux/ptrace.h>

enum part { UPDATE, MAP, FLUSH, INVALIDATE };
enum leaf { NO_LEAF, BARRIER, PAGE_FLUSH, TLB };
enum loss { RECORD_LOST, RETURN_MISSED, ENTRY_MISSED, TABLE_FULL, LOSS_COUNT };

/* One update call; its layout is that of counting._Record. */
struct call {
	u64 start_ns;
	u64 end_ns;
	u64 pid_tid;
	u64 caller;
	u64 maps;
	u64 map_ns;
	u64 runs;
	u64 bytes;
	u64 barriers;
	u64 barrier_ns;
	u64 invalidates;
	u64 tlb_ns;
	u64 page_flushes;
	u64 page_flush_ns;
	/* barriers and invalidates that lay inside a mapping call, and their time */
	u64 syncs_in_map;
	u64 sync_in_map_ns;
	/* leaves at any depth: what the probes themselves cost is counted by these */
	u64 leaves;
	u64 leaves_in_map;
	u64 failed_iteration;
	u32 failed_status;
	u32 status;
	/* state of the walk */
	u64 map_start_ns;
	u64 leaf_start_ns;
	u64 next_va;
	u32 leaf;
	u32 leaf_depth;
	u32 in_map;
	u32 failed;
};

BPF_HASH(calls, u32, struct call, 16384);
BPF_HASH(watched, u32, u8, 16384);
BPF_RINGBUF_OUTPUT(updates, 512);
BPF_ARRAY(losses, u64, LOSS_COUNT);

static __always_inline int is_watched(u32 pid)
{
#if FILTER
	return watched.lookup(&pid) != 0;
#else
	return 1;
#endif
}

static __always_inline void enter_update(u32 pid, u32 tid, u64 pid_tid, u64 caller)
{
	struct call fresh = {};

	if (!is_watched(pid))
		return;
	if (calls.lookup(&tid))
		losses.increment(RETURN_MISSED);
	fresh.pid_tid = pid_tid;
	fresh.caller = caller;
	fresh.start_ns = bpf_ktime_get_ns();
	if (calls.update(&tid, &fresh))
		losses.increment(TABLE_FULL);
}

static __always_inline void enter_map(struct call *call, u64 va_lo, u64 va_hi)
{
	if (call->maps == 0 || va_lo != call->next_va)
		call->runs++;
	call->maps++;
	call->bytes += va_hi + 1 - va_lo;
	call->next_va = va_hi + 1;
	call->in_map = 1;
	call->map_start_ns = bpf_ktime_get_ns();
}

static __always_inline void enter_leaf(struct call *call, u32 leaf)
{
	call->leaves++;
	if (call->in_map)
		call->leaves_in_map++;
	if (call->leaf != NO_LEAF) {
		call->leaf_depth++;
		return;
	}
	call->leaf = leaf;
	call->leaf_start_ns = bpf_ktime_get_ns();
}

static __always_inline int enter(u32 part, u64 third_argument, u64 sixth_argument,
				 u64 seventh_argument, u64 caller)
{
	u64 pid_tid = bpf_get_current_pid_tgid();
	u32 tid = pid_tid;
	struct call *call;

	if (part == UPDATE) {
		enter_update(pid_tid >> 32, tid, pid_tid, caller);
		return 0;
	}
	call = calls.lookup(&tid);
	if (!call)
		return 0;
	if (part == MAP)
		enter_map(call, sixth_argument, seventh_argument);
	else if (part == INVALIDATE)
		enter_leaf(call, TLB);
	else if ((third_argument & BARRIER_FLAGS) == BARRIER_FLAGS)
		enter_leaf(call, BARRIER);
	else
		enter_leaf(call, PAGE_FLUSH);
	return 0;
}

static __always_inline void leave_leaf(struct call *call, u64 now_ns)
{
	u64 duration_ns = now_ns - call->leaf_start_ns;

	if (call->leaf_depth > 0) {
		call->leaf_depth--;
		return;
	}
	if (call->leaf == BARRIER) {
		call->barriers++;
		call->barrier_ns += duration_ns;
	} else if (call->leaf == TLB) {
		call->invalidates++;
		call->tlb_ns += duration_ns;
	} else if (call->leaf == PAGE_FLUSH) {
		call->page_flushes++;
		call->page_flush_ns += duration_ns;
	} else {
		losses.increment(ENTRY_MISSED);
		return;
	}
	if (call->in_map && call->leaf != PAGE_FLUSH) {
		call->syncs_in_map++;
		call->sync_in_map_ns += duration_ns;
	}
	call->leaf = NO_LEAF;
}

static __always_inline void leave_map(struct call *call, u64 now_ns, u32 status)
{
	if (!call->in_map) {
		losses.increment(ENTRY_MISSED);
		return;
	}
	if (call->leaf != NO_LEAF) {
		losses.increment(RETURN_MISSED);
		call->leaf = NO_LEAF;
		call->leaf_depth = 0;
	}
	call->in_map = 0;
	call->map_ns += now_ns - call->map_start_ns;
	if (status && !call->failed) {
		call->failed = 1;
		call->failed_status = status;
		call->failed_iteration = call->maps - 1;
	}
}

static __always_inline int leave(u32 part, u64 now_ns, u64 value)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct call *call = calls.lookup(&tid);

	if (!call)
		return 0;
	if (part == MAP) {
		leave_map(call, now_ns, value);
	} else if (part == UPDATE) {
		call->end_ns = now_ns;
		call->status = value;
		if (updates.ringbuf_output(call, sizeof(*call), 0))
			losses.increment(RECORD_LOST);
		calls.delete(&tid);
	} else {
		leave_leaf(call, now_ns);
	}
	return 0;
}

#if FROM_MODULE

TRACEPOINT_PROBE(vmmprof_probe, vmmprof_probe_enter)
{
	return enter(args->part, args->third_argument, args->sixth_argument,
		     args->seventh_argument, args->caller);
}

TRACEPOINT_PROBE(vmmprof_probe, vmmprof_probe_return)
{
	return leave(args->part, args->time_ns, args->value);
}

#else

static __always_inline u64 stack_slot(struct pt_regs *regs, int slot)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (u64 *)regs->sp + slot);
	return value;
}

static __always_inline int enter_kprobe(struct pt_regs *regs, u32 part)
{
	return enter(part, regs->dx, regs->r9, stack_slot(regs, 1), stack_slot(regs, 0));
}

int enter_0(struct pt_regs *regs) { return enter_kprobe(regs, UPDATE); }
int enter_1(struct pt_regs *regs) { return enter_kprobe(regs, MAP); }
int enter_2(struct pt_regs *regs) { return enter_kprobe(regs, FLUSH); }
int enter_3(struct pt_regs *regs) { return enter_kprobe(regs, INVALIDATE); }
int leave_0(struct pt_regs *regs) { return leave(UPDATE, bpf_ktime_get_ns(), regs->ax); }
int leave_1(struct pt_regs *regs) { return leave(MAP, bpf_ktime_get_ns(), regs->ax); }
int leave_2(struct pt_regs *regs) { return leave(FLUSH, bpf_ktime_get_ns(), regs->ax); }
int leave_3(struct pt_regs *regs) { return leave(INVALIDATE, bpf_ktime_get_ns(), regs->ax); }

#endif

#if FILTER
/* Children of what is watched are watched. A new thread gets an entry of its own, which is
 * harmless: entries are looked up by process. */
TRACEPOINT_PROBE(sched, sched_process_fork)
{
	u32 parent = bpf_get_current_pid_tgid() >> 32;
	u32 child = args->child_pid;
	u8 yes = 1;

	if (watched.lookup(&parent))
		watched.update(&child, &yes);
	return 0;
}
#endif
