/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples: packets that user space gets to see. */
#pragma once

#include "clock.h"
#include "decision.h"
#include "packet.h"
#include "throttle.h"
#include "verifier.h"

/* Whether any rule hands out samples. Constant from load on: without one, take_sample() is left out. */
const volatile bool sampling;

enum {
	SAMPLE_BYTES = 128,       /* of a frame that are handed out */
	SAMPLE_INTERVAL = 100000, /* nanoseconds between two samples of a CPU: 10,000 a second, */
	SAMPLE_BURST = 99,        /* and so many more at once */
	SAMPLE_WAKE = 64 << 10,   /* bytes that wait before the reader is woken: it looks now and then in any case */
};

struct sample {
	__u64 time; /* nanoseconds of CLOCK_MONOTONIC */
	__u32 slot;
	__u32 verdict;
	__u32 ifindex;
	__u32 bytes;    /* of the frame, */
	__u32 captured; /* and how many of them follow */
	__u8 frame[SAMPLE_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} samples SEC(".maps");

/* What a CPU has handed out. */
struct sampler {
	__u64 next; /* when the next sample is due, in nanoseconds: a generic cell rate algorithm (ITU-T I.371) */
	__u64 lost; /* samples that were above the rate, or found the ring full */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sampler);
} samplers SEC(".maps");

/* Fills a sample in. Returns false when the frame cannot be read. */
static __always_inline bool fill_sample(struct xdp_md *ctx, struct packet *p, struct sample *s, __u32 decision)
{
	__u32 bytes = bpf_xdp_get_buff_len(ctx), captured = bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES;

	if (captured < 1)
		return false;
	captured = known_length(captured, SAMPLE_BYTES);
	s->time = time_of(p);
	s->slot = decision >> 8;
	s->verdict = decision & VERDICT_MASK;
	s->ifindex = ctx->ingress_ifindex;
	s->bytes = bytes;
	s->captured = captured;
	return !bpf_xdp_load_bytes(ctx, 0, s->frame, captured);
}

/* Hands a packet to user space. A global function, like ipv4_options. */
__noinline __u32 take_sample(struct xdp_md *ctx, struct packet *p, __u32 decision)
{
	__u32 key = 0;
	struct sampler *sampler = bpf_map_lookup_elem(&samplers, &key);
	struct sample *s;
	__u64 waiting;

	if (!p || !sampler)
		return 0;
	s = within_rate(&sampler->next, time_of(p), SAMPLE_INTERVAL, SAMPLE_BURST)
		    ? bpf_ringbuf_reserve(&samples, sizeof(*s), 0)
		    : NULL;
	if (!s) {
		sampler->lost++;
		return 0;
	}
	if (!fill_sample(ctx, p, s, decision)) {
		bpf_ringbuf_discard(s, BPF_RB_NO_WAKEUP);
		return 0;
	}
	waiting = bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA);
	bpf_ringbuf_submit(s, waiting >= SAMPLE_WAKE ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	return 0;
}
