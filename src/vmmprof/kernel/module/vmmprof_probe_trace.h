/* SPDX-License-Identifier: Dual MIT/GPL */
/* The tracepoint that vmmprof's BPF program reads. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM vmmprof_probe

#if !defined(VMMPROF_PROBE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define VMMPROF_PROBE_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(vmmprof_probe_enter,
	TP_PROTO(u32 part, u64 third_argument, u64 sixth_argument, u64 seventh_argument, u64 caller),
	TP_ARGS(part, third_argument, sixth_argument, seventh_argument, caller),
	TP_STRUCT__entry(
		__field(u32, part)
		__field(u64, third_argument)
		__field(u64, sixth_argument)
		__field(u64, seventh_argument)
		__field(u64, caller)
	),
	TP_fast_assign(
		__entry->part = part;
		__entry->third_argument = third_argument;
		__entry->sixth_argument = sixth_argument;
		__entry->seventh_argument = seventh_argument;
		__entry->caller = caller;
	),
	TP_printk("part=%u 3rd=%llx 6th=%llx 7th=%llx caller=%llx", __entry->part,
		  __entry->third_argument, __entry->sixth_argument, __entry->seventh_argument,
		  __entry->caller)
);

TRACE_EVENT(vmmprof_probe_return,
	TP_PROTO(u32 part, u64 time_ns, u64 value),
	TP_ARGS(part, time_ns, value),
	TP_STRUCT__entry(
		__field(u32, part)
		__field(u64, time_ns)
		__field(u64, value)
	),
	TP_fast_assign(
		__entry->part = part;
		__entry->time_ns = time_ns;
		__entry->value = value;
	),
	TP_printk("part=%u time=%llu value=%llx", __entry->part, __entry->time_ns, __entry->value)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE vmmprof_probe_trace
#include <trace/define_trace.h>
