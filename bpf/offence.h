/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Offences: who exceeded a limit that bans. User space hears of some of them, and decides whom to ban. */
#pragma once

/* Whether any limit bans. Constant from load on: without one, report_offence() is left out. */
const volatile bool reporting;

enum {
	OFFENCE_INTERVAL = 100000, /* nanoseconds between two reports of a CPU: 10,000 a second, */
	OFFENCE_BURST = 99,        /* and so many more at once */
};

struct offence {
	__u32 limit;
	__u32 family;
	struct address src;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 << 10);
} offences SEC(".maps");

/* When each CPU may report next, in nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} reporters SEC(".maps");

/* Reports the source of a packet that exceeds a limit. Like ipv4_options a function of its own to the verifier. */
__noinline __u32 report_offence(struct packet *p)
{
	__u32 key = 0;
	__u64 *next = bpf_map_lookup_elem(&reporters, &key);
	struct offence *o;

	if (!p || !p->exceeded || !next || !may_hand_out(next, time_of(p), OFFENCE_INTERVAL, OFFENCE_BURST))
		return 0;
	o = bpf_ringbuf_reserve(&offences, sizeof(*o), 0);
	if (!o)
		return 0;
	o->limit = p->exceeded - 1;
	o->family = p->family;
	o->src = p->src;
	bpf_ringbuf_submit(o, BPF_RB_NO_WAKEUP);
	return 0;
}
