// SPDX-License-Identifier: Dual MIT/GPL
/*
 * Makes chosen calls of one kernel function return a chosen status.
 *
 * The function's body runs and its return value is replaced, as when the
 * driver fails late. Works on functions without ftrace pads. A parameter may
 * be changed while loaded; unloading restores everything. Load it before a
 * BPF probe attaches, or that probe sees the value from before.
 *
 *   function=nvidia:dmaUpdateVASpace_GF100  which function (required)
 *   status=0x51      what it returns
 *   call=100         the first call to fail, from 0, among those that match
 *   times=1          how many fail from there on
 *   thread=0         only calls by this thread ID; 0 is every thread
 *   per_million=0    instead of call and times: fail with this probability
 *
 * Read back: seen (calls that matched), injected (calls that were failed).
 */
#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched.h>

#define MILLION 1000000u

static char *function = "";
module_param(function, charp, 0444);
static uint status = 0x51;
module_param(status, uint, 0644);
static uint call;
module_param(call, uint, 0644);
static uint times = 1;
module_param(times, uint, 0644);
static int thread;
module_param(thread, int, 0644);
static uint per_million;
module_param(per_million, uint, 0644);
static uint max_active = 512;
module_param(max_active, uint, 0444);

static atomic_t seen = ATOMIC_INIT(0);
static atomic_t injected = ATOMIC_INIT(0);

static int show_counter(char *buffer, const struct kernel_param *parameter)
{
	return sysfs_emit(buffer, "%d\n", atomic_read((const atomic_t *)parameter->arg));
}
static const struct kernel_param_ops counter_ops = { .get = show_counter };
module_param_cb(seen, &counter_ops, &seen, 0444);
module_param_cb(injected, &counter_ops, &injected, 0444);

static bool is_due(void)
{
	u32 number;

	if (thread && thread != current->pid)
		return false;
	number = (u32)atomic_inc_return(&seen) - 1;
	if (per_million)
		return get_random_u32() % MILLION < per_million;
	return number >= call && number - call < times;
}

static int on_return(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if (is_due()) {
		regs_set_return_value(regs, status);
		atomic_inc(&injected);
	}
	return 0;
}
NOKPROBE_SYMBOL(on_return);

static struct kretprobe probe = { .handler = on_return };

static int __init fault_init(void)
{
	int error;

	if (!*function) {
		pr_err("vmmprof_fault: function= is missing; it names what is to fail\n");
		return -EINVAL;
	}
	if (per_million > MILLION) {
		pr_err("vmmprof_fault: per_million=%u; it is at most %u\n", per_million, MILLION);
		return -EINVAL;
	}
	if (thread < 0) {
		pr_err("vmmprof_fault: thread=%d is no thread ID\n", thread);
		return -EINVAL;
	}
	probe.kp.symbol_name = function;
	probe.maxactive = max_active;
	error = register_kretprobe(&probe);
	if (error)
		pr_err("vmmprof_fault: %s cannot be probed (error %d)\n", function, error);
	return error;
}

static void __exit fault_exit(void)
{
	unregister_kretprobe(&probe);
	pr_info("vmmprof_fault: %d calls seen, %d failed, %d missed\n", atomic_read(&seen),
		atomic_read(&injected), probe.nmissed);
}

module_init(fault_init);
module_exit(fault_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Makes chosen calls of a function fail");
