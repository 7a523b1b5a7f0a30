// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The datapath: parse, check, classify the addresses, let the policy decide, count the reason, act.
 *
 * The C parses and acts. Generated code decides: internal/compile/xdp generates instructions from a policy. When the policy is loaded,
 * they replace the body of decide() below.
 */
#include "act.h"
#include "address.h"
#include "bits.h"
#include "check.h"
#include "classify.h"
#include "condition.h"
#include "count.h"
#include "decision.h"
#include "dns.h"
#include "dynamic.h"
#include "egress.h"
#include "explain.h"
#include "gamequery.h"
#include "ingress.h"
#include "kernel.h"
#include "l4.h"
#include "packet.h"
#include "parse.h"
#include "sample.h"
#include "sampleleaving.h"
#include "segment.h"
#include "usualsyn.h"
#include "verifier.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Whether any rule asks for the class of the source and of the destination. Constants to the verifier. */
const volatile bool classify_src;
const volatile bool classify_dst;

/* The decision when nothing matched. */
const volatile __u32 default_decision;

/*
 * The placeholder for the rules. It must look as if it read the packet and could return any number. Otherwise the
 * compiler removes the argument, the stores before the call, and the code that uses the result. It is a global function,
 * so the verifier checks the rules once for all callers. Therefore the verifier assumes that the argument may be null.
 */
__noinline __u32 decide(context *ctx, struct packet *p)
{
	__u32 decision = default_decision + condition_holds(ctx, p, 0);

	asm volatile("" : "+r"(decision) : "r"(ctx), "r"(p) : "memory");
	return decision;
}

/* How many conditions the tables of rules ask for. A constant to the verifier. */
const volatile __u32 table_conditions;

/* Whether the condition that decide() has named holds. If no table has conditions, internal/compile/image/prune.go removes the function. */
__noinline __u32 named_condition(context *ctx, struct packet *p)
{
	return p ? condition_holds(ctx, p, p->condition) : 0;
}

/*
 * Returns the decision of the rules. Tables do not call conditions themselves, because the verifier would follow the
 * loops of each call. They name the condition, and decide() is called again when it does not hold.
 */
static __always_inline __u32 decide_all(context *ctx, struct packet *p)
{
	__u32 decision;

	p->first = 0;
	decision = decide(ctx, p);
	for (__u32 i = 0; i < table_conditions; i++) {
		if (!(decision & DECISION_CONDITIONAL))
			break;
		if (named_condition(ctx, p))
			break;
		decision = decide(ctx, p);
	}
	return decision & ~DECISION_CONDITIONAL;
}

/* Whether a frame fails a check in SENDER_CHECKS, and no other check that drops: a frame with an impossible source belongs to no flow. */
static __always_inline bool only_sender_fails(struct frame *f)
{
	__u64 failed = opaque(f->failed);

	return failed & (enabled_checks | observed_checks) & SENDER_CHECKS &&
	       !(failed & enabled_checks & ~SENDER_CHECKS);
}

/*
 * The fields of the first of the packets that the kernel has joined. Each has the headers of the joined packet, and the last one may be shorter. The
 * payload is searched in all of them: `end` is the end of the last one.
 */
static __always_inline void part_joined(context *ctx, struct frame *f)
{
	struct packet *p = &f->packet;

	if (!p->payload || p->payload > p->end)
		return;
	p->more = joined_packets(ctx, p->end - p->payload);
	if (!p->more)
		return;
	p->length -= p->end - p->payload;
	p->length += segment_bytes(ctx);
	p->bytes += p->more * (p->payload + wire_length(ctx, 0));
}

static __noinline enum kind parse(context *ctx, struct frame *f)
{
	struct cursor c = {
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	enum kind kind = KIND_NOT_IP;
	bool whole = true;
	__u32 claimed = 0;
	__be16 ethertype;

	f->failed = 0;
	c.linear = c.end - c.pos;
	f->packet.bytes = frame_bytes(ctx, c.pos, c.end);
	f->packet.port = f->packet.sport = PORT_NONE;
	f->packet.flags = FLAGS_NONE;
	f->packet.icmp = ICMP_NONE;
	f->packet.mss = MSS_NONE;
	f->packet.fragment = FRAGMENT_NONE;
	f->packet.l4 = f->packet.payload = f->packet.end = f->packet.exceeded = 0;
	/* Before Linux 6.3 the verifier refuses a struct that is not written completely (commit 6715df8d5d24). */
	f->packet.condition = f->packet.more = 0;
	f->packet.patterns = ~0ULL; /* any may be there until they are searched */

	ethertype = LINK_HEADER ? parse_ethernet(ctx, &c, f) : parse_bare(ctx, f);
	if (ethertype == bpf_htons(ETH_P_IP)) {
		kind = parse_ipv4(ctx, &c, f);
		whole = f->packet.fragment != FRAGMENT_LATER;
	} else if (ethertype == bpf_htons(ETH_P_IPV6)) {
		kind = parse_ipv6(ctx, &c, f, &claimed);
		if (kind == KIND_IP)
			whole = parse_extensions(ctx, &c, f, claimed);
	}
	if (kind != KIND_IP)
		return kind;
	if ((enabled_checks | observed_checks) & ADDRESS_CHECKS)
		check_addresses(f);
	if (whole)
		parse_l4(ctx, &c, f);
	if (JOINS)
		part_joined(ctx, f);
	if (replies_first && only_sender_fails(f) && packet_is_reply(ctx, &f->packet))
		f->failed &= ~SENDER_CHECKS;
	/* A packet that fails a check is dropped: parsing its DNS query would be wasted. */
	no_dns(&f->packet);
	if (!(opaque(f->failed) & enabled_checks))
		parse_dns(ctx, &f->packet);
	return kind;
}

/* Whether a rule or a check needs the result of classify_addresses(). A constant to the verifier. */
static __always_inline bool asks_addresses(void)
{
	return classify_src || classify_dst || dynamic_src_sets || dynamic_dst_sets || enabled(CHECK_OWN_SOURCE);
}

static __noinline void classify_addresses(struct frame *f)
{
	bool v6 = f->packet.family;
	__u32 src_sets = dynamic_src_sets, dst_sets = dynamic_dst_sets;

	if (enabled(CHECK_OWN_SOURCE))
		src_sets |= local_set;
	f->packet.src_class = classify_src ? classify(f->packet.src, v6) : 0;
	f->packet.dst_class = classify_dst ? classify(f->packet.dst, v6) : 0;
	f->packet.src_dynamic = src_sets ? dynamic_sets(f->packet.src, v6, src_sets) : 0;
	f->packet.dst_dynamic = dst_sets ? dynamic_sets(f->packet.dst, v6, dst_sets) : 0;
	fail_if(f->failed, CHECK_OWN_SOURCE, f->packet.src_dynamic & local_set);
}

/* Counts the packet at the first failed check among those that only count. */
static __always_inline void observe(struct frame *f)
{
	__u64 failed = opaque(f->failed) & observed_checks;

	if (failed && !(f->packet.seen & SEEN_QUESTION))
		count_packet(DECISION(lowest_bit(failed), VERDICT_PASS), &f->packet);
}

static __always_inline __u32 judge(context *ctx, struct frame *f)
{
	enum kind kind = parse(ctx, f);
	__u64 failed;

	/* A packet that fails a check needs no classes, unless its addresses may fail a check that is reported first. */
	if (!asks_addresses())
		f->packet.src_class = f->packet.dst_class = f->packet.src_dynamic = f->packet.dst_dynamic = 0;
	else if (kind == KIND_IP && (enabled(CHECK_OWN_SOURCE) || !(opaque(f->failed) & enabled_checks)))
		classify_addresses(f);
	failed = opaque(f->failed) & enabled_checks;
	if (failed)
		return DECISION(lowest_bit(failed), VERDICT_DROP);
	if (observed_checks)
		observe(f);
	if (kind == KIND_NOT_IP)
		return DECISION(SLOT_NOT_IP, VERDICT_PASS);
	if (kind == KIND_MALFORMED)
		return default_decision;
	return decide_all(ctx, &f->packet);
}

/*
 * Decides any frame, and acts on the decision. The generated entry calls it for every frame that it does not decide
 * itself. It is a global function, so the verifier checks it once for all callers.
 */
__noinline int general(context *ctx)
{
	struct frame f;
	__u32 decision;

	make_linear(ctx);
	read_question(ctx, &f.packet);
	decision = judge(ctx, &f);
	if (answer_question(ctx, decision, 0) && !(f.packet.seen & SEEN_ACT))
		return ACTION_PASS;
	count_packet(decision, &f.packet);
	watch_traffic(ctx, decision);
	return act(ctx, &f.packet, decision);
}

/* The next step of the entry. The values are also in internal/compile/xdp/entry/generate.go. */
enum entry_answer {
	ENTRY_COUNT,   /* count it and act: the frame carries no question, or one with SEEN_ACT */
	ENTRY_DONE,    /* nothing more: the question is answered */
	ENTRY_GENERAL, /* leave it to general() */
};

/* Answers a question with the decision of the entry. Returns an enum entry_answer. */
__noinline __u32 answer_in_entry(context *ctx, __u32 decision)
{
	__u32 flags;
	__u64 now;

	if (!read_question_of(ctx, &now, &flags))
		return ENTRY_COUNT;
	if (flags & SEEN_GENERAL)
		return ENTRY_GENERAL;
	write_answer(ctx, decision, (flags & (SEEN_CHARGE | SEEN_ACT)) | SEEN_ENTRY);
	return flags & SEEN_ACT ? ENTRY_COUNT : ENTRY_DONE;
}

/* Always false. The calls that it guards keep functions in the object file that only the generated entry calls. */
const volatile bool entry_calls;

/*
 * The placeholder for the entry, which internal/compile/xdp/entry generates for each policy. The entry parses the
 * headers that the policy needs in usual frames, and decides them. Without an entry, general() decides all frames.
 */
SEC(HOOK)
int floodwall(context *ctx)
{
	__u64 used;

	if (entry_calls) {
		used = class4(0) + class4_in_filter(0) + class4_of_host(0) + class6(0, 0) + is_member(0, 0, 0, 0) +
		       charge_hash(0, 0, 0, 0, 0);
		used += find_open_flow4(0, 0, 0) + find_open_flow6(hash_addresses6(0, 0, 0, 0), 0, 0);
		used += decide_known(ctx, 0, 0, 0) + decide_unknown(ctx, 0, 0, 0);
		used += protect_segment(ctx, 0, 0) + answer_usual_syn(ctx, 0, 0, 0, 0) +
			answer_plain_syn(ctx, 0, 0, 0, 0);
		used += sample_traffic(ctx, 0) + is_reply(0, 0, 0, 0) + known_in_frame(ctx, 0, 0) +
			goes_on_in_frame(ctx, 0, 0) + again_in_frame(ctx, 0, 0) + proved_in_frame(ctx, 0, 0) +
			stray_in_frame(ctx, 0, 0) + challenge_query(ctx, 0, 0);
		return answer_in_entry(ctx, used);
	}
	return general(ctx);
}
