// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program of the lab. When a process that watches for stalls gets a CPU, it notes the thread that had the CPU before (internal/lab/stall.go). */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define CPUS_MAX 1024

/* The fields used of the kernel's struct task_struct. */
struct task_struct {
	int tgid;
	struct task_struct *group_leader;
	char comm[16];
} __attribute__((preserve_access_index));

/* struct holder is the name of a thread. */
struct holder {
	__u8 name[16];
};

/* The thread that had a CPU before, by the number of the CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct holder);
} holders SEC(".maps");

/* The name of the processes that watch. Go's runtime has threads of its own in them. */
const volatile struct holder watching;

/* Arguments: preempt, the thread before, the next one (include/trace/events/sched.h, sched_switch). */
SEC("tp_btf/sched_switch")
int note_holder(__u64 *arguments)
{
	struct task_struct *before = (void *)arguments[1], *next = (void *)arguments[2];
	__u32 cpu = bpf_get_smp_processor_id();
	struct holder comm, *holder;

	if (BPF_CORE_READ(before, tgid) == BPF_CORE_READ(next, tgid))
		return 0;
	BPF_CORE_READ_INTO(&comm, next, group_leader, comm);
	for (int i = 0; i < 16; i++)
		if (comm.name[i] != watching.name[i])
			return 0;
	holder = bpf_map_lookup_elem(&holders, &cpu);
	if (holder)
		BPF_CORE_READ_INTO(holder, before, comm);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
