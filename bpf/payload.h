/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Payload conditions of rules: bytes at fixed places, and patterns anywhere in the first bytes. All patterns are
 * searched for at once, the first time a rule asks for any: at each position a hash of four bytes leads, through a
 * table, to the patterns that may match there. internal/compile/xdp/payload.go fills the maps.
 */
#pragma once

#include "packet.h"
#include "verifier.h"

enum {
	WINDOW_MAX = 1024, /* bytes of the payload that are searched */
	PATTERN_MAX = 64,  /* bytes of a pattern */
	PATTERNS_MAX = 64,
	PLACES_MAX = 16,  /* in one match */
	PLACE_MAX = 16,   /* bytes of a place */
	BLOCK = 16,       /* positions that are compared before a branch on the result */
	LEADS_BLOCK = 32, /* the same where leads are used */
	QUAD_SLOTS = 1 << 13,
};

/* Bytes at a fixed place: the bits of value where mask is set. */
struct place {
	__u16 offset;
	__u8 l4;     /* 1: offset is from the L4 header on, 0: from the payload on */
	__u8 length; /* 1 to PLACE_MAX */
	__u32 reserved;
	__u64 value[PLACE_MAX / 8];
	__u64 mask[PLACE_MAX / 8];
};

/* A pattern: text with a mask. The mask is 0 behind the end of the text, and lacks bit 5 for letters that match in either case. */
struct pattern {
	__u64 value[PATTERN_MAX / 8];
	__u64 mask[PATTERN_MAX / 8];
	__u16 length;
	__u16 within; /* the pattern must end within so many bytes of the payload */
	__u16 before; /* bytes of the pattern before the four by which the table finds it */
	__u16 more;   /* the next pattern is in the same slot of the table */
};

struct patterns {
	__u8 quads[QUAD_SLOTS];            /* by the hash of four bytes: 1 + the first pattern that has them */
	__u8 pairs[QUAD_SLOTS];            /* by the hash of two bytes: 1 if a shorter pattern may begin with them */
	struct pattern list[PATTERNS_MAX]; /* patterns of less than four bytes come first */
};

/* The bytes read from a packet. */
struct window {
	__u8 text[WINDOW_MAX + PATTERN_MAX + BLOCK]; /* the bytes to search; any bytes may follow */
	__u64 place[PLACE_MAX / 8];                  /* the bytes of a place; any bytes may follow */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct place);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct patterns);
} patterns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct window);
} window SEC(".maps");

/* How many bytes of the payload are searched, as the patterns require, and the number of patterns with less than four bytes. */
const volatile __u32 window_length;
const volatile __u32 short_patterns;

/*
 * Leads replace the table when there are few patterns and none is short. The table finds a pattern by four of its bytes. A lead has the
 * first two of them, each repeated eight times. Comparing eight positions with a lead at once takes a fifth of the time of the table.
 */
const volatile __u32 num_leads;
const volatile struct lead {
	__u64 first;
	__u64 second;
} leads[2];

static __always_inline struct patterns *all_patterns(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&patterns, &first);
}

/* Four bytes, folded so that letters are equal in either case. Some other bytes become equal too, which costs only time. */
static __always_inline __u32 quad_at(__u8 *text)
{
	return *(__u32 *)text | 0x20202020;
}

/* Multiplicative hashing: the multiplier is 2^32 divided by the golden ratio (Knuth, volume 3, 6.4). */
static __always_inline __u32 quad_slot(__u32 quad)
{
	return quad * 0x9e3779b1 >> 19;
}

static __always_inline __u32 pair_slot(__u32 quad)
{
	return quad_slot(quad & 0xffff);
}

static __always_inline bool has_text(struct pattern *pattern, __u8 *text)
{
#pragma unroll
	for (int i = 0; i < PATTERN_MAX / 8; i++) {
		if (i * 8 >= pattern->length)
			break;
		if ((*(__u64 *)(text + i * 8) ^ pattern->value[i]) & pattern->mask[i])
			return false;
	}
	return true;
}

/* Hides a value from LLVM, which otherwise computes expressions ahead of time and needs the stack for them. */
#define hide(value) asm volatile("" : "+r"(value))

/* The text at a position, masked so that the verifier sees that it is inside the window. */
static __always_inline __u8 *text_at(struct window *w, __u32 at)
{
	hide(at);
	return w->text + (at & (WINDOW_MAX - 1));
}

/* The patterns that match, one bit each, among the pattern `first` and those after it in the same slot. at is the position of their four bytes. */
static __always_inline __u64 patterns_from(struct patterns *t, struct window *w, __u32 at, __u32 length, __u32 first)
{
	__u64 found = 0;

	for (__u32 i = 0; i < PATTERNS_MAX; i++) {
		__u32 number = (first + i) & (PATTERNS_MAX - 1);
		struct pattern *pattern = &t->list[number];
		__u32 from = at - pattern->before, past = from + pattern->length;

		if (pattern->before <= at && past <= length && past <= pattern->within &&
		    has_text(pattern, text_at(w, from)))
			found = opaque(found | 1ULL << number);
		if (!pattern->more)
			break;
	}
	return found;
}

/*
 * The patterns that match with their four bytes at a position, one bit each. This function and next_suspect() are global: the
 * verifier checks their loops once. They call nothing, because their callers use most of the stack.
 */
__noinline __u64 patterns_at(struct window *w, __u32 at, __u32 length)
{
	struct patterns *t = all_patterns();
	__u64 found = 0;
	__u32 quad;

	if (!w || !t)
		return 0;
	quad = quad_at(text_at(w, at));
	if (t->quads[quad_slot(quad)])
		found = patterns_from(t, w, at, length, t->quads[quad_slot(quad)] - 1);
	if (short_patterns && t->pairs[pair_slot(quad)])
		found |= patterns_from(t, w, at, length, 0);
	return found;
}

/* Bit 7 of each byte that is zero; bytes above such a byte may have it too (Mycroft; Hacker's Delight, 6-1). */
static __always_inline __u64 zero_bytes(__u64 x)
{
	return (x - 0x0101010101010101) & ~x & 0x8080808080808080;
}

/* Whether any of eight positions may have a lead. */
static __always_inline __u64 leads_at(__u8 *text)
{
	__u64 first = *(__u64 *)text | 0x2020202020202020, second = *(__u64 *)(text + 1) | 0x2020202020202020;
	__u64 found = zero_bytes((first ^ leads[0].first) | (second ^ leads[0].second));

	if (num_leads > 1)
		found |= zero_bytes((first ^ leads[1].first) | (second ^ leads[1].second));
	return found;
}

/* Whether any pattern may begin in a block. It branches only after all positions are compared. */
static __always_inline bool is_suspect(struct patterns *t, __u8 *block)
{
	__u64 suspect = 0;

	hide(block);
#pragma unroll
	for (__u32 i = 0; i < BLOCK; i++) {
		suspect |= t->quads[quad_slot(quad_at(block + i))];
		hide(suspect);
	}
	if (!short_patterns)
		return suspect;
#pragma unroll
	for (__u32 i = 0; i < BLOCK; i++) {
		suspect |= t->pairs[pair_slot(quad_at(block + i))];
		hide(suspect);
	}
	return suspect;
}

/* The start of the first block from a position on that may have a lead, or a position past the end. */
static __always_inline __u32 next_leads(struct window *w, __u32 at, __u32 length)
{
	for (int i = 0; i <= WINDOW_MAX / LEADS_BLOCK; i++) {
		__u8 *text;

		if (at >= length)
			return WINDOW_MAX;
		text = text_at(w, at);
		hide(text);
		if (leads_at(text) | leads_at(text + 8) | leads_at(text + 16) | leads_at(text + 24))
			break;
		at += LEADS_BLOCK;
	}
	return at;
}

/* Like next_leads(), but uses the table in place of leads. */
static __always_inline __u32 next_block(struct patterns *t, struct window *w, __u32 at, __u32 length)
{
	for (int i = 0; i <= WINDOW_MAX / BLOCK; i++) {
		if (at >= length)
			return WINDOW_MAX;
		if (is_suspect(t, text_at(w, at)))
			break;
		at += BLOCK;
	}
	return at;
}

/*
 * The next position from the given one on at which a pattern may have its four bytes, or a position past the end. No
 * pattern matches before it. At most WINDOW_MAX bytes are searched.
 */
__noinline __u32 next_suspect(struct window *w, __u32 at, __u32 length)
{
	struct patterns *t = all_patterns();

	if (!w || !t)
		return WINDOW_MAX;
	at = num_leads ? next_leads(w, at, length) : next_block(t, w, at, length);
	if (at >= length)
		return WINDOW_MAX;
	for (__u32 i = 0; i < BLOCK; i++) {
		__u32 quad = quad_at(text_at(w, at));

		if (t->quads[quad_slot(quad)] || (short_patterns && t->pairs[pair_slot(quad)]))
			break;
		at++;
	}
	return at;
}

static __always_inline __u64 find_patterns(context *ctx, struct packet *p)
{
	__u32 length = p->end - p->payload, at = 0;
	struct window *w = bpf_map_lookup_elem(&window, &at);
	__u64 found = 0;

	if (!w || !p->payload)
		return 0;
	if (length > window_length)
		length = window_length;
	if (length < 1 || length > WINDOW_MAX)
		return 0;
	length = known_length(length, WINDOW_MAX);
	if (load_frame(ctx, p->payload, w->text, length) < 0)
		return 0;
	for (int i = 0; i < WINDOW_MAX; i++) {
		at = next_suspect(w, at, length);
		if (at >= length)
			break;
		found |= patterns_at(w, at, length);
		at++;
	}
	return found;
}

static __always_inline bool place_holds(context *ctx, struct packet *p, struct window *w, struct place *place)
{
	__u32 base = place->l4 ? p->l4 : p->payload, from = base + place->offset, length = place->length;

	if (!base || from + length > p->end)
		return false;
	if (length < 1 || length > PLACE_MAX || load_frame(ctx, from, w->place, known_length(length, PLACE_MAX)) < 0)
		return false;
	return !((w->place[0] ^ place->value[0]) & place->mask[0]) &&
	       !((w->place[1] ^ place->value[1]) & place->mask[1]);
}

/* Whether the bytes at all of these places match. */
__noinline __u32 places_hold(context *ctx, struct packet *p, __u32 at, __u32 count)
{
	__u32 number = 0;
	struct window *w = bpf_map_lookup_elem(&window, &number);

	if (!p || !w)
		return 0;
	for (__u32 i = 0; i < PLACES_MAX; i++) {
		struct place *place;

		if (i >= count)
			break;
		number = at + i;
		place = bpf_map_lookup_elem(&places, &number);
		if (!place || !place_holds(ctx, p, w, place))
			return 0;
	}
	return 1;
}

/* Whether the bytes at all places match and, unless `any` is 0, the payload has at least one of the patterns in `any`. */
__noinline __u32 payload_matches(context *ctx, struct packet *p, __u64 any, __u32 at, __u32 count)
{
	if (!p || (count && !places_hold(ctx, p, at, count)))
		return 0;
	if (!any)
		return 1;
	if (!(p->seen & SEEN_PATTERNS)) {
		p->patterns = find_patterns(ctx, p);
		p->seen |= SEEN_PATTERNS;
	}
	return !!(p->patterns & any);
}
