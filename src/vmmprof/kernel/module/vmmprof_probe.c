// SPDX-License-Identifier: Dual MIT/GPL
/*
 * Probes functions that have no ftrace pads, as the NVIDIA driver's core, and
 * hands what it sees to a tracepoint that a BPF program can read.
 *
 * Controlled by text written to /dev/vmmprof_probe while it is held open:
 *
 *   arm PART MODULE:FUNCTION   probe entry and return; PART is a number that
 *                              the tracepoint carries (update_path.Part)
 *   disarm                     take all probes away
 *   calibrate COUNT JUMPS      probe the module's own empty functions, nested
 *                              as the update path is, COUNT iterations long;
 *                              JUMPS is 1 to wait until the kernel has turned
 *                              the breakpoints into jumps, as it may have done
 *                              with the others
 *
 * Reading gives one line a probe: PART FUNCTION HITS MISSED JUMP. Closing the file,
 * also by the death of the process, takes every probe away. Nothing is probed
 * while nobody holds the file open. One holder at a time.
 */
#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <asm/asm.h>

#define CREATE_TRACE_POINTS
#include "vmmprof_probe_trace.h"

#define MAX_PROBES 16
#define MAX_NAME 160
#define MAX_COMMAND (MAX_NAME + 32)
#define MAX_CALIBRATION 100000u
#define JUMP_WAIT_MS 20
#define JUMP_WAITS 1500 /* 30 s: a loaded machine takes its time */

enum part { PART_UPDATE, PART_MAP, PART_FLUSH, PART_INVALIDATE, PART_COUNT };

static uint max_active = 512;
module_param(max_active, uint, 0444);
MODULE_PARM_DESC(max_active, "threads that may be inside a probed function at once");

struct probe {
	struct kretprobe kretprobe;
	char name[MAX_NAME];
	u32 part;
	atomic64_t hits;
	bool armed;
};

static struct probe probes[MAX_PROBES];
static unsigned int probe_count;
static DEFINE_MUTEX(lock);
static atomic_t holders = ATOMIC_INIT(0);

static struct probe *probe_of(struct kretprobe_instance *instance)
{
	return container_of(get_kretprobe(instance), struct probe, kretprobe);
}
NOKPROBE_SYMBOL(probe_of);

static u64 stack_slot(const struct pt_regs *regs, unsigned int slot)
{
	u64 value = 0;

	copy_from_kernel_nofault(&value, (const u64 *)regs->sp + slot, sizeof(value));
	return value;
}
NOKPROBE_SYMBOL(stack_slot);

/* At a function's first instruction the stack holds the return address, then
 * the seventh argument. This handler runs before the return address is replaced. */
static int on_enter(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct probe *probe = probe_of(instance);

	atomic64_inc(&probe->hits);
	trace_vmmprof_probe_enter(probe->part, regs->dx, regs->r9, stack_slot(regs, 1),
				  stack_slot(regs, 0));
	return 0;
}
NOKPROBE_SYMBOL(on_enter);

static int on_return(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	u64 now_ns = ktime_get_mono_fast_ns();

	trace_vmmprof_probe_return(probe_of(instance)->part, now_ns, regs_return_value(regs));
	return 0;
}
NOKPROBE_SYMBOL(on_return);

static int arm(u32 part, const char *name, void *address)
{
	struct probe *probe;
	int error;

	if (probe_count == MAX_PROBES)
		return -ENOSPC;
	probe = &probes[probe_count];
	memset(probe, 0, sizeof(*probe));
	strscpy(probe->name, name, sizeof(probe->name));
	probe->part = part;
	probe->kretprobe.entry_handler = on_enter;
	probe->kretprobe.handler = on_return;
	probe->kretprobe.maxactive = max_active;
	if (address)
		probe->kretprobe.kp.addr = address;
	else
		probe->kretprobe.kp.symbol_name = probe->name;
	error = register_kretprobe(&probe->kretprobe);
	if (error)
		return error;
	probe->armed = true;
	probe_count++;
	return 0;
}

static void disarm_from(unsigned int first)
{
	while (probe_count > first)
		unregister_kretprobe(&probes[--probe_count].kretprobe);
	tracepoint_synchronize_unregister();
}

/*
 * The update path with nothing in it, twice. As the driver's, these functions
 * have no pads. The kernel turns breakpoints in the first set into jumps after
 * a while; in the second it never does, because they have an entry in the
 * exception table (for an instruction that cannot fault), as it does not in a
 * driver that returns through thunks. Both begin as most functions do, with an
 * instruction that is stepped over and not emulated.
 */
#define BEGIN_AS_MOST "push %%rbp\n\tpop %%rbp\n\t"
#define MAY_BE_JUMPS BEGIN_AS_MOST ".rept 8\n\tnop\n\t.endr\n\t"
#define STAY_BREAKPOINTS BEGIN_AS_MOST "1:\tnop\n\t" _ASM_EXTABLE(1b, 1b)

#define DEFINE_CALIBRATION_PATH(kind, fill)                                    \
	static noinline notrace int kind##_flush(void *gpu, void *bus, u32 flags)      \
	{                                                                              \
		asm volatile(fill : : "r"(gpu), "r"(bus), "r"(flags) : "memory");      \
		return 0;                                                              \
	}                                                                              \
	static noinline notrace int kind##_invalidate(void *gpu)                       \
	{                                                                              \
		asm volatile(fill : : "r"(gpu) : "memory");                            \
		return 0;                                                              \
	}                                                                              \
	static noinline notrace int kind##_map(void *gpu)                              \
	{                                                                              \
		int status = kind##_flush(gpu, gpu, 3);                                \
                                                                                       \
		status |= kind##_invalidate(gpu);                                      \
		asm volatile(fill : : "r"(gpu) : "memory");                            \
		return status;                                                         \
	}                                                                              \
	static noinline notrace int kind##_update(void *gpu, u32 count)                \
	{                                                                              \
		int status = 0;                                                        \
                                                                                       \
		while (count--)                                                        \
			status |= kind##_map(gpu);                                     \
		asm volatile(fill : : "r"(gpu) : "memory");                            \
		return status;                                                         \
	}                                                                              \
	static const struct calibration_path kind = {                                  \
		.functions = { kind##_update, kind##_map, kind##_flush, kind##_invalidate }, \
		.run = kind##_update,                                                  \
	}

struct calibration_path {
	void *functions[PART_COUNT]; /* by part */
	int (*run)(void *gpu, u32 count);
};

DEFINE_CALIBRATION_PATH(with_jumps, MAY_BE_JUMPS);
DEFINE_CALIBRATION_PATH(with_breakpoints, STAY_BREAKPOINTS);

static bool is_jump(const struct probe *probe)
{
	return probe->kretprobe.kp.flags & KPROBE_FLAG_OPTIMIZED;
}

static bool all_jumps_from(unsigned int first)
{
	while (first < probe_count)
		if (!is_jump(&probes[first++]))
			return false;
	return true;
}

static int calibrate(u32 count, u32 jumps)
{
	const struct calibration_path *path = jumps ? &with_jumps : &with_breakpoints;
	unsigned int first = probe_count;
	unsigned int waits = 0;
	int error = 0;
	u32 part;

	for (part = 0; part < PART_COUNT && !error; part++)
		error = arm(part, "calibration", path->functions[part]);
	while (!error && jumps && !all_jumps_from(first)) {
		if (waits++ == JUMP_WAITS)
			error = -ETIMEDOUT;
		msleep(JUMP_WAIT_MS);
	}
	if (!error)
		path->run(&probes, count);
	disarm_from(first);
	return error;
}

static int control_open(struct inode *inode, struct file *file)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (atomic_cmpxchg(&holders, 0, 1) != 0)
		return -EBUSY;
	return 0;
}

static int control_release(struct inode *inode, struct file *file)
{
	mutex_lock(&lock);
	disarm_from(0);
	mutex_unlock(&lock);
	atomic_set(&holders, 0);
	return 0;
}

static int run_command(char *command)
{
	char name[MAX_NAME];
	u32 number, jumps;

	if (sscanf(command, "arm %u %159s", &number, name) == 2) {
		if (number >= PART_COUNT)
			return -EINVAL;
		return arm(number, name, NULL);
	}
	if (!strcmp(command, "disarm")) {
		disarm_from(0);
		return 0;
	}
	if (sscanf(command, "calibrate %u %u", &number, &jumps) == 2) {
		if (!number || number > MAX_CALIBRATION)
			return -EINVAL;
		return calibrate(number, jumps);
	}
	return -EINVAL;
}

static ssize_t control_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	char command[MAX_COMMAND];
	int error;

	if (length >= sizeof(command))
		return -EINVAL;
	if (copy_from_user(command, from, length))
		return -EFAULT;
	command[length] = '\0';
	mutex_lock(&lock);
	error = run_command(command);
	mutex_unlock(&lock);
	return error ? error : length;
}

static ssize_t control_read(struct file *file, char __user *to, size_t length, loff_t *at)
{
	const size_t line_size = MAX_NAME + 64;
	ssize_t result = 0;
	unsigned int i;
	size_t size = 0;
	char *text;

	text = kzalloc(MAX_PROBES * line_size, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	mutex_lock(&lock);
	for (i = 0; i < probe_count; i++)
		size += scnprintf(text + size, line_size, "%u %s %lld %lu %d\n",
				  probes[i].part, probes[i].name, atomic64_read(&probes[i].hits),
				  probes[i].kretprobe.nmissed + probes[i].kretprobe.kp.nmissed,
				  is_jump(&probes[i]));
	mutex_unlock(&lock);
	result = simple_read_from_buffer(to, length, at, text, size);
	kfree(text);
	return result;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.write = control_write,
	.read = control_read,
	.llseek = default_llseek,
};

static struct miscdevice control = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "vmmprof_probe",
	.fops = &control_fops,
	.mode = 0600,
};

module_misc_device(control);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Raw return probes as a tracepoint, for vmmprof");
MODULE_VERSION("0.1.0");
