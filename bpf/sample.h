/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples: packets that are copied to user space. */
#pragma once

#include "clock.h"
#include "decision.h"
#include "packet.h"
#include "throttle.h"
#include "verifier.h"

/* Whether any rule takes samples. Constant from load on; when false, take_sample() is removed. */
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

/* The sampling state of a CPU. */
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

/*
 * One in 2^32 / traffic_share of all packets is sampled as well, whatever decides it, so that user space sees the
 * traffic. 0 means none. Constant from load on.
 */
const volatile __u32 traffic_share;

/* These samples have a ring and a rate of their own, so that neither kind takes the other's place. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} traffic SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sampler);
} traffic_samplers SEC(".maps");

/* Fills a sample in. Returns false when the frame cannot be read. */
static __always_inline bool fill_sample(struct xdp_md *ctx, __u64 now, struct sample *s, __u32 decision)
{
	__u32 bytes = bpf_xdp_get_buff_len(ctx), captured = bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES;

	if (captured < 1)
		return false;
	captured = known_length(captured, SAMPLE_BYTES);
	s->time = now;
	s->slot = decision >> 8;
	s->verdict = decision & (VERDICT_MASK | DECISION_PROTECTED);
	s->ifindex = ctx->ingress_ifindex;
	s->bytes = bytes;
	s->captured = captured;
	return !bpf_xdp_load_bytes(ctx, 0, s->frame, captured);
}

/* Copies a packet to user space through a ring buffer, within the rate of a CPU. */
static __always_inline void hand_out(struct xdp_md *ctx, void *ring, void *samplers_of_ring, __u64 now, __u32 decision)
{
	__u32 key = 0;
	struct sampler *sampler = bpf_map_lookup_elem(samplers_of_ring, &key);
	struct sample *s;
	__u64 waiting;

	if (!sampler)
		return;
	s = within_rate(&sampler->next, now, SAMPLE_INTERVAL, SAMPLE_BURST) ? bpf_ringbuf_reserve(ring, sizeof(*s), 0)
									    : NULL;
	if (!s) {
		sampler->lost++;
		return;
	}
	if (!fill_sample(ctx, now, s, decision)) {
		bpf_ringbuf_discard(s, BPF_RB_NO_WAKEUP);
		return;
	}
	waiting = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
	bpf_ringbuf_submit(s, waiting >= SAMPLE_WAKE ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* Samples a packet for a rule. A global function, like ipv4_options(). */
__noinline __u32 take_sample(struct xdp_md *ctx, struct packet *p, __u32 decision)
{
	if (p)
		hand_out(ctx, &samples, &samplers, time_of(p), decision & ~DECISION_PROTECTED);
	return 0;
}

/* Samples a packet of the traffic. The verdict does not change. The generated entry calls it too. */
__noinline __u32 sample_traffic(struct xdp_md *ctx, __u32 decision)
{
	hand_out(ctx, &traffic, &traffic_samplers, bpf_ktime_get_ns(), decision);
	return 0;
}

/* Chooses packets for sample_traffic() at random. */
static __always_inline void watch_traffic(struct xdp_md *ctx, __u32 decision)
{
	if (traffic_share && bpf_get_prandom_u32() < traffic_share)
		sample_traffic(ctx, decision);
}
