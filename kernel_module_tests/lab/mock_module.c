// SPDX-License-Identifier: Dual MIT/GPL
/*
 * A mock of the driver's update path for tests of probes, around either core.
 *
 * debugfs <module>/run: write a struct mock_request; runs it in the writer's
 * context. <module>/truth: what the mock counted since the last reset, a name
 * and a number a line. <module>/reset: write anything.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "mock_core.h"

#define MAX_PAGES (1u << 20)

static struct dentry *folder;
static struct mock_truth sum;
static u32 last_status;
static DEFINE_SPINLOCK(sum_lock);

notrace u64 mock_now_ns(void)
{
	return ktime_get_mono_fast_ns();
}

notrace void mock_sleep_us(u64 duration_us)
{
	usleep_range(duration_us, duration_us + 50);
}

/* A stub stands for every function that the lab does not provide to a driver's object. */
u64 mock_reached(const char *function)
{
	WARN(1, KBUILD_MODNAME ": %s was called, which the lab does not provide\n", function);
	return 0;
}

static ssize_t run_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	struct mock_gpu *gpu;
	const u64 *count;
	ssize_t result = length;
	void *state = NULL;
	size_t i;

	if (length != sizeof(gpu->request))
		return -EINVAL;
	gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	if (!gpu)
		return -ENOMEM;
	if (copy_from_user(&gpu->request, from, length)) {
		result = -EFAULT;
		goto out;
	}
	if (!gpu->request.pages || !gpu->request.run_pages || gpu->request.pages > MAX_PAGES) {
		result = -EINVAL;
		goto out;
	}
	state = vzalloc(mock_state_bytes);
	if (!state) {
		result = -ENOMEM;
		goto out;
	}
	mock_run(gpu, state);
	spin_lock(&sum_lock);
	count = (const u64 *)&gpu->truth;
	for (i = 0; i < sizeof(sum) / sizeof(u64); i++)
		((u64 *)&sum)[i] += count[i];
	last_status = gpu->status;
	spin_unlock(&sum_lock);
out:
	vfree(state);
	kfree(gpu);
	return result;
}

static int truth_show(struct seq_file *file, void *unused)
{
#define SHOW(name) seq_printf(file, #name " %llu\n", sum.name)
	SHOW(updates);
	SHOW(maps);
	SHOW(runs);
	SHOW(bytes);
	SHOW(barriers);
	SHOW(invalidates);
	SHOW(page_flushes);
	SHOW(outside_flushes);
	SHOW(update_ns);
	SHOW(pte_ns);
	SHOW(barrier_ns);
	SHOW(tlb_ns);
#undef SHOW
	seq_printf(file, "status %u\n", last_status);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(truth);

static ssize_t reset_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	spin_lock(&sum_lock);
	memset(&sum, 0, sizeof(sum));
	last_status = 0;
	spin_unlock(&sum_lock);
	return length;
}

static const struct file_operations run_fops = { .owner = THIS_MODULE, .write = run_write };
static const struct file_operations reset_fops = { .owner = THIS_MODULE, .write = reset_write };

static int __init mock_init(void)
{
	folder = debugfs_create_dir(KBUILD_MODNAME, NULL);
	debugfs_create_file("run", 0200, folder, NULL, &run_fops);
	debugfs_create_file("reset", 0200, folder, NULL, &reset_fops);
	debugfs_create_file("truth", 0400, folder, NULL, &truth_fops);
	return 0;
}

static void __exit mock_exit(void)
{
	debugfs_remove_recursive(folder);
}

module_init(mock_init);
module_exit(mock_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Mock of the static BAR1 update path, for tests of probes");
