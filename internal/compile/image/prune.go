// SPDX-License-Identifier: Apache-2.0

package image

import (
	"maps"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// optional maps functions of the C part to a constant. A function is called only if its constant is set.
var optional = map[string]string{
	"make_reply":           "answers",
	"may_answer":           "answers",
	"act_specially":        "specials",
	"take_sample":          "sampling",
	"report_offence":       "reporting",
	"judge_sender":         "judging",
	"sample_traffic":       "samples_traffic",
	"sample_leaving":       "samples_leaving",
	"named_condition":      "table_conditions",
	"read_mss":             "reads_mss",
	"dns_query":            "dns_ports",
	"dns_cookie":           "verify_cookies",
	"client_verified":      "dns_verify",
	"name_sets":            "name_buckets",
	"name_unanswered":      "unanswered_bit",
	"packet_is_reply":      "notes_replies",
	"is_reply":             "notes_flows",
	"note_other":           "notes_flows",
	"expect_reply":         "notes_flows",
	"count_answer":         "floods",
	"is_calm":              "floods",
	"is_spent":             "floods",
	"known_client":         "floods",
	"known_in_frame":       "floods",
	"goes_on":              "floods",
	"goes_on_in_frame":     "floods",
	"came_again":           "floods",
	"comes_again":          "floods",
	"again_in_frame":       "floods",
	"proved_datagram":      "reads_datagrams",
	"read_issued_key":      "reads_datagrams",
	"read_chosen_key":      "reads_datagrams",
	"note_size":            "reads_datagrams",
	"promote_client":       "reads_datagrams",
	"has_own_identifier":   "reads_datagrams",
	"proved_in_frame":      "reads_datagrams",
	"stray_datagram":       "reads_datagrams",
	"stray_in_frame":       "reads_datagrams",
	"note_issued":          "reads_datagrams",
	"read_query":           "serves",
	"has_cookie":           "serves",
	"has_request_cookie":   "admits",
	"has_issued_challenge": "serves",
	"is_served":            "serves",
	"proves_query":         "challenges",
	"challenge_query":      "serves",
	"proved_query":         "challenges",
	"goes_to_service":      "challenges",
	"make_challenge":       "serves",
	"make_served":          "serves",
	"resize_frame":         "serves",
	"keep_game_answer":     "serves",
	"turn_challenge":       "serves",
	"query_challenged":     "serves",
	"note_game_query":      "serves",
	"read_request":         "admits",
	"make_reply1":          "admits",
	"knows_server":         "admits",
	"make_request1":        "admits",
	"note_request":         "admits",
	"admit":                "admits",
	"take_reply1":          "admits",
	"turn_reply1":          "admits",
	"note_server":          "admits",
	"guard_leaving":        "guarded",

	"protect":               "protects",
	"cookie_make":           "protect_host",
	"cookie_check":          "protect_host",
	"listener_cookie":       "protect_listener",
	"listener_cookie_valid": "protect_listener",
	"raw_cookie":            "protect_router",
	"raw_cookie_valid":      "protect_router",
	"repeat_syn_ack":        "protect_router",
	"tracked_connection":    "ask_conntrack",
	"forget_connection":     "ask_conntrack",
}

// without replaces calls of functions whose constant is not set. The result of such a call is 0. The verifier would find these calls dead, but the
// functions and their maps would still be loaded.
func without(insns asm.Instructions, constants map[string]any) asm.Instructions {
	out := slices.Clone(insns)
	for i, in := range out {
		name, ok := optional[in.Reference()]
		if ok && in.IsFunctionReference() && !isSet(constants[name]) {
			out[i] = asm.Mov.Imm(asm.R0, 0)
			out[i].Metadata = in.Metadata
			out[i] = out[i].WithReference("")
		}
	}
	return out
}

// isSet reports whether a constant has a value that is true in C.
func isSet(constant any) bool { return constant != nil && !reflect.ValueOf(constant).IsZero() }

// reachable removes functions that are never called. The verifier would reject them, or spend time on them for nothing
// (https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/verifier.c, check_cfg).
func reachable(insns asm.Instructions) asm.Instructions {
	bodies := map[string]asm.Instructions{}
	var order []string
	for i := range insns {
		if btf.FuncMetadata(&insns[i]) != nil {
			order = append(order, insns[i].Symbol())
		}
		name := order[len(order)-1]
		bodies[name] = append(bodies[name], insns[i])
	}
	used := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if used[name] {
			return
		}
		used[name] = true
		for i := range bodies[name] {
			if in := &bodies[name][i]; in.IsFunctionReference() {
				visit(in.Reference())
			}
		}
	}
	visit(order[0])
	var out asm.Instructions
	for _, name := range order {
		if used[name] {
			out = append(out, bodies[name]...)
		}
	}
	return out
}

// dropUnused removes the maps of the C part to which no instruction refers.
func dropUnused(spec *ebpf.CollectionSpec, h Hook) {
	used := map[string]bool{Counters: true, constantsMap: true}
	for _, prog := range spec.Programs {
		for _, in := range prog.Instructions {
			if in.IsLoadFromMap() {
				used[in.Reference()] = true
			}
		}
	}
	known := h.load().Maps
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return known[name] != nil && !used[name] })
}
