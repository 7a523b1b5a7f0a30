// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The program of a device while a policy is on trial. It runs the new generation until a deadline, and the old one from
 * then on. It chooses for each packet, so no process is needed. If a generation lacks the device, its slot is empty:
 * then every packet passes while that generation is in force, as if nothing were attached.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The slots of `generations`, as in internal/kernel/datapath/trialcode.go. */
enum slot {
	SLOT_NEW,
	SLOT_OLD,
	SLOT_NONE, /* always empty */
	SLOTS,
};

const volatile __u32 during = SLOT_NONE; /* before the deadline */
const volatile __u32 after = SLOT_NONE;

/* A prog array takes only programs of one kind: with or without support for multi-buffer frames. The kernel empties it
 * when its last reference from user space is gone, even if a program uses it: so it stays pinned. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SLOTS);
	__uint(key_size, 4);
	__uint(value_size, 4);
} generations SEC(".maps");

/* struct term is shared by all programs of a trial: one store of the deadline decides for all devices at once. */
struct term {
	__u64 deadline; /* ns of CLOCK_MONOTONIC */
	__u64 whole;    /* for user space only: every device has its program */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct term);
} term SEC(".maps");

/* Tail-calls the program of the generation in force; returns only if that slot is empty. */
static __always_inline void run_generation(void *ctx)
{
	__u32 first = 0;
	const volatile struct term *t = bpf_map_lookup_elem(&term, &first);

	if (t && bpf_ktime_get_ns() < t->deadline)
		bpf_tail_call(ctx, &generations, during);
	else
		bpf_tail_call(ctx, &generations, after);
}

SEC("xdp.frags") int floodwall_trial(struct xdp_md *ctx)
{
	run_generation(ctx);
	return XDP_PASS;
}

/* TCX_NEXT of linux/bpf.h: as if nothing were attached. */
#define NEXT (-1)

/* The program for packets that XDP has passed: generations that protect services of this host have a program for them. */
SEC("tcx/ingress") int ingress_trial(struct __sk_buff *skb)
{
	run_generation(skb);
	return NEXT;
}

/* The program for packets that leave: generations with a guard have a program for them. */
SEC("tcx/egress") int egress_trial(struct __sk_buff *skb)
{
	run_generation(skb);
	return NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
