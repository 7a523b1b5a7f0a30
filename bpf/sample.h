/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples: packets that are copied to user space. */
#pragma once

#include "clock.h"
#include "copyframe.h"
#include "decision.h"
#include "packet.h"
#include "throttle.h"
#include "verifier.h"

/* Whether any rule takes samples. Constant from load on; when false, take_sample() is removed. */
const volatile bool sampling;

enum {
	SAMPLE_INTERVAL = 100000, /* nanoseconds between two samples of a CPU: 10,000 a second */
	SAMPLE_BURST = 99,        /* samples that a CPU may take at once beyond that rate */
	SAMPLE_WAKE = 64 << 10,   /* bytes in the ring at which the reader is woken; it also polls now and then */
};

struct sample {
	__u64 time; /* nanoseconds of CLOCK_MONOTONIC */
	__u32 slot;
	__u32 verdict;
	__u32 ifindex;
	__u32 bytes;    /* the length of the frame */
	__u32 captured; /* the number of its bytes that follow */
	__u32 share;    /* how many of 2^32 packets are sampled; 0 in samples of rules */
	__u8 frame[COPY_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} samples SEC(".maps");

/* The sampling state of a CPU. */
struct sampler {
	__u64 next;  /* when the next sample is due, in nanoseconds: a generic cell rate algorithm (ITU-T I.371) */
	__u64 lost;  /* samples that were above the rate, or found the ring full */
	__u64 eased; /* in samples of the traffic: when the share was last halved */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sampler);
} samplers SEC(".maps");

/*
 * Constants. samples_traffic: whether arriving packets are sampled for user space, whatever their decision. samples_adapt: whether the share
 * adapts to the rate. samples_leaving: whether leaving packets are sampled, from which user space learns which clients this host answers.
 */
const volatile bool samples_traffic;
const volatile bool samples_adapt;
const volatile bool samples_leaving;

enum {
	LEAST_SHARE = 1 << 12,   /* one in a million */
	EASE_EVERY = 1000000,    /* the least nanoseconds between two halvings of a share by a CPU */
	SAMPLE_LEAVES = 0x20,    /* a flag of a sample's verdict: the packet leaves */
	SAMPLE_JOINED_SHIFT = 8, /* of the verdict: the number of further packets joined to this one */
};

/*
 * How many of 2^32 arriving packets, and of 2^32 leaving packets, are sampled. User space raises a share that yields few samples.
 * The program halves a share that yields more than the rate of a CPU: a flood begins faster than user space notices it, and
 * user space may have ended.
 */
struct traffic_shares {
	__u32 arriving, leaving;
} traffic_shares SEC(".data.traffic");

/* Samples of the traffic have a ring and a rate of their own, so that they and the samples of rules do not displace each other. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} traffic SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* 0: arriving packets, 1: leaving packets */
	__type(key, __u32);
	__type(value, struct sampler);
} traffic_samplers SEC(".maps");

/*
 * Reserves a sample, and sets its time and share; the caller sets the rest. Returns NULL when the CPU is over its rate or the ring is full,
 * and then halves the share if that may adapt. share is NULL when there is none.
 */
static __always_inline struct sample *reserve_sample(void *ring, struct sampler *sampler, __u32 *share, __u64 now)
{
	struct sample *s = NULL;
	__u32 of = share ? *share : 0;

	if (within_rate(&sampler->next, now, SAMPLE_INTERVAL, SAMPLE_BURST))
		s = bpf_ringbuf_reserve(ring, sizeof(*s), 0);
	if (s) {
		s->time = now;
		s->share = of;
		return s;
	}
	sampler->lost++;
	if (share && samples_adapt && of > LEAST_SHARE && now - sampler->eased > EASE_EVERY) {
		sampler->eased = now;
		*share = of >> 1;
	}
	return NULL;
}

/* Submits a sample to user space, unless its frame could not be read. */
static __always_inline void submit_sample(void *ring, struct sample *s, bool whole)
{
	__u64 waiting;

	if (!whole) {
		bpf_ringbuf_discard(s, BPF_RB_NO_WAKEUP);
		return;
	}
	waiting = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
	bpf_ringbuf_submit(s, waiting >= SAMPLE_WAKE ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* Fills a sample with an arriving packet. Returns false when the frame cannot be read. Of joined packets it is the first. */
static __always_inline bool fill_sample(context *ctx, struct sample *s, __u32 decision)
{
	s->slot = decision >> 8;
	s->verdict = decision & (VERDICT_MASK | DECISION_PROTECTED);
	s->ifindex = ctx->ingress_ifindex;
	s->captured = copy_frame(ctx, s->frame, &s->bytes);
	if (JOINS) {
		__u32 more = joined_packets(ctx, s->bytes), size = segment_bytes(ctx), payload = (more + 1) * size;

		if (more) { /* the payload of the last segment may be shorter, which makes the headers seem shorter */
			s->verdict |= more << SAMPLE_JOINED_SHIFT;
			s->bytes = size + (s->bytes > payload ? s->bytes - payload : 0);
			if (s->captured > s->bytes)
				s->captured = s->bytes;
		}
	}
	return s->captured;
}

/* Samples a packet for a rule. A global function, like ipv4_options(). */
__noinline __u32 take_sample(context *ctx, struct packet *p, __u32 decision)
{
	__u32 key = 0;
	struct sampler *sampler = bpf_map_lookup_elem(&samplers, &key);
	struct sample *s;

	if (!p || !sampler)
		return 0;
	s = reserve_sample(&samples, sampler, NULL, time_of(p));
	if (s)
		submit_sample(&samples, s, fill_sample(ctx, s, decision & ~DECISION_PROTECTED));
	return 0;
}

/* Samples an arriving packet. The verdict does not change. The generated entry calls it too. */
__noinline __u32 sample_traffic(context *ctx, __u32 decision)
{
	__u32 key = 0;
	struct sampler *sampler = bpf_map_lookup_elem(&traffic_samplers, &key);
	struct sample *s;

	if (!sampler)
		return 0;
	s = reserve_sample(&traffic, sampler, &traffic_shares.arriving, bpf_ktime_get_ns());
	if (s)
		submit_sample(&traffic, s, fill_sample(ctx, s, decision));
	return 0;
}

/* Chooses packets for sample_traffic() at random. */
static __always_inline void watch_traffic(context *ctx, __u32 decision)
{
	if (samples_traffic && bpf_get_prandom_u32() < traffic_shares.arriving)
		sample_traffic(ctx, decision);
}
