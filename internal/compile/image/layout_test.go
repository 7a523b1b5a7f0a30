// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// structOf returns a C struct of the object.
func structOf(t *testing.T, name string) *btf.Struct {
	t.Helper()
	var s *btf.Struct
	if err := image.Load().Types.TypeByName(name, &s); err != nil {
		t.Fatalf("struct %s: %v", name, err)
	}
	return s
}

// members returns the offsets of a struct's members in bytes.
func members(s *btf.Struct) map[string]int {
	offsets := map[string]int{}
	for _, m := range s.Members {
		offsets[m.Name] = int(m.Offset.Bytes())
	}
	return offsets
}

// TestStructPacket compares the C struct with the offsets that generated code uses. The members that generated code uses come first, and are 32-bit
// numbers. Only C uses the later members.
func TestStructPacket(t *testing.T) {
	s := structOf(t, "packet")
	want := []struct {
		member string
		offset int16
	}{
		{"src_class", image.SrcClass}, {"dst_class", image.DstClass}, {"src_dynamic", image.SrcDynamic}, {"dst_dynamic", image.DstDynamic},
	}
	for f := range packet.NumFields {
		want = append(want, struct {
			member string
			offset int16
		}{f.String(), image.FieldOffset(f)})
	}
	offsets := members(s)
	for _, w := range want {
		if got, ok := offsets[w.member]; !ok || got != int(w.offset) {
			t.Errorf("member %s is at %d (there: %t), want %d", w.member, got, ok, w.offset)
		}
	}
	if at := offsets["patterns"]; at != int(image.FoundPatterns) {
		t.Errorf("member patterns is at %d, want %d", at, image.FoundPatterns)
	}
	for i, m := range s.Members[:len(want)] {
		if size, err := btf.Sizeof(m.Type); err != nil || size != 4 || int(m.Offset.Bytes()) != 4*i {
			t.Errorf("member %s has %d bytes at %d, %v, want 4 at %d", m.Name, size, m.Offset.Bytes(), err, 4*i)
		}
	}
}

// TestStructLayouts compares the C structs that user space writes or reads with the layouts that the Go code documents.
func TestStructLayouts(t *testing.T) {
	for _, test := range []struct {
		name    string
		size    int
		members map[string]int
	}{
		{"dynamic_info", image.DynamicInfoSize, map[string]int{
			"seed": 0, "base": 8, "mask": 12, "capacity": 16, "entries": 20}},
		{"dynamic_info", addrs.DynamicInfoBytes, nil},
		{"lengths", addrs.LengthsBlockBytes, map[string]int{"word": 0}},
		{"bucket", addrs.BucketBytes, map[string]int{"key": 0, "meta": 48, "lengths": 60}},
		{"line", addrs.LineBytes, map[string]int{"hosts": 0, "inside": 32, "outside": 34, "full": 36}},
		{"full", addrs.FullBlockBytes, map[string]int{"class": 0}},
		{"limit_info", image.LimitInfoSize, map[string]int{"cost": 0, "most": 8, "fresh": 16, "base": 24, "mask": 28,
			"left": 32, "right": 33, "bits": 34, "prefixes": 35, "src": 40, "dst": 72}},
		{"limit_bucket", image.LimitBucketSize, map[string]int{"slot": 0, "swept": 8 * image.LimitSlots}},
		{"counter", 16, map[string]int{"packets": 0, "octets": 8}},
		{"protection_state", image.ProtectionStateSize, map[string]int{"active_until": image.ActiveUntil, "refused_until": image.RefusedUntil}},
		{"flow_bucket", image.FlowBucketSize, map[string]int{"word": 0}},
		{"syn_keys", image.SynKeysSize, map[string]int{"present": 0, "previous": 16, "rotated": 32, "hash": image.SynKeysHash}},
		{"host_ends", image.HostEndsSize, map[string]int{"shown": 0, "marks": 32, "word": 32 + 4096}},
		{"flood_state", image.FloodStateSize, map[string]int{"until": 0, "spent": 8, "unproved": 16, "id_length": 24, "id_mask": 32}},
		{"reply_bucket", image.ReplyBucketSize, map[string]int{"word": 0}},
		{"reply_filter", image.ReplySecretsSize + image.ReplyUsedSize + 8, map[string]int{
			"secrets": 0, "used": image.ReplySecretsSize, "bits": image.ReplySecretsSize + image.ReplyUsedSize,
		}},
		{"reply_counts", 16, map[string]int{"displaced": 0, "refused": 8}},
		{"sampler", 24, map[string]int{"next": 0, "lost": 8, "eased": 16}},
	} {
		s := structOf(t, test.name)
		if int(s.Size) != test.size {
			t.Errorf("struct %s has %d bytes, want %d", test.name, s.Size, test.size)
		}
		offsets := members(s)
		for member, want := range test.members {
			if got, ok := offsets[member]; !ok || got != want {
				t.Errorf("struct %s: %s is at %d (there: %t), want %d", test.name, member, got, ok, want)
			}
		}
	}
}

var (
	enumEntry = regexp.MustCompile(`(?m)^\s+([A-Z][A-Z0-9_]*)(?: = ([^,]+))?,`)
	enumBody  = regexp.MustCompile(`(?s)enum ?(\w*) \{(.*?)\n\};`)
	shift     = regexp.MustCompile(`^(\d+) << (\d+)$`)
	define    = regexp.MustCompile(`(?m)^#define ([A-Z][A-Z0-9_]*) (\d+)ULL\b`)
)

// constants returns the constants of a C header that are plain numbers, not expressions. The object does not contain constants that only inlined
// functions use.
func constants(t *testing.T, file string) map[string]int {
	t.Helper()
	source, err := os.ReadFile("../../../bpf/" + file)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for _, body := range enumBody.FindAllStringSubmatch(string(source), -1) {
		next, known := 0, true
		for _, e := range enumEntry.FindAllStringSubmatch(body[2], -1) {
			if e[2] != "" {
				next, known = number(strings.TrimSpace(e[2]))
			}
			if known {
				values[e[1]] = next
			}
			next++
		}
	}
	for _, d := range define.FindAllStringSubmatch(string(source), -1) {
		values[d[1]], _ = number(d[2])
	}
	if len(values) == 0 {
		t.Fatalf("%s: no enum found", file)
	}
	return values
}

// number parses a number, or a shift expression of two numbers.
func number(text string) (n int, ok bool) {
	var left int
	if m := shift.FindStringSubmatch(text); m != nil {
		text = m[1]
		left, _ = strconv.Atoi(m[2])
	}
	read, err := strconv.ParseInt(text, 0, 0)
	return int(read) << left, err == nil
}

// TestEnumCheck compares the names of enum check with the checks of package packet.
func TestEnumCheck(t *testing.T) {
	values := constants(t, "check.h")
	if values["NUM_CHECKS"] != int(packet.NumChecks) || len(values) != int(packet.NumChecks)+1 {
		t.Errorf("%d constants, NUM_CHECKS is %d, want %d checks", len(values), values["NUM_CHECKS"], packet.NumChecks)
	}
	for c := range packet.NumChecks {
		name := "CHECK_" + strings.ToUpper(strings.ReplaceAll(c.String(), "-", "_"))
		if got, ok := values[name]; !ok || got != int(c) {
			t.Errorf("%s is %d (there: %t), want %d", name, got, ok, c)
		}
	}
	if int(packet.NumChecks) > image.SlotWaiting {
		t.Errorf("%d checks reach into the slots from %d on", packet.NumChecks, image.SlotWaiting)
	}
}

func TestEnums(t *testing.T) {
	for file, want := range map[string]map[string]int{
		"decision.h": {"SLOT_REPLIES": image.SlotReplies, "SLOT_NOT_IP": image.SlotNotIP, "SLOT_DEFAULT": image.SlotDefault,
			"SLOT_RULES":   image.SlotRules,
			"VERDICT_PASS": int(ir.Pass), "VERDICT_DROP": int(ir.Drop), "VERDICT_REJECT": int(ir.Reject),
			"VERDICT_TRUNCATE": int(ir.Truncate), "DECISION_SPECIAL": image.Special, "DECISION_CONDITIONAL": image.Conditional,
			"DECISION_PROTECTED": image.Protected},
		"protection.h": {"METHOD_HOST": int(ir.MethodHost), "METHOD_LISTENER": int(ir.MethodListener),
			"METHOD_ROUTER": int(ir.MethodRouter), "PROTECT_ALWAYS": 1, "OFFER_WSCALE": int(ir.WindowScaling),
			"OFFER_SACK": int(ir.SACK), "OFFER_TIMESTAMPS": int(ir.Timestamps), "OFFER_ECN": int(ir.ECN),
			"SYN_ANSWERED": int(ir.SynAnswered), "SYN_LIMITED": int(ir.SynLimited), "ACK_PROVED": int(ir.AckProved),
			"ACK_INVALID": int(ir.AckInvalid), "ACK_ASKED": int(ir.AckAsked), "NUM_OUTCOMES": int(ir.NumOutcomes)},
		"flow.h": {"FLOW_SLOTS": image.FlowSlots},
		"replyflow.h": {"REPLY_SLOTS": image.ReplySlots, "REPLY_BUCKET_BITS": image.ReplyBucketBits, "REPLY_STATES": len(image.ReplyLife),
			"REPLY_TAG_SHIFT": image.ReplyTagShift, "REPLY_CLIENT": image.ReplyClient, "REPLY_CLIENT_NEW": image.ReplyClientNew, "CLIENT_KNOWN": ir.KnownTimes,
			"LIFE_REPLY_CLIENT": int(ir.KnownLife / ir.KnownUnit),
			"REPLY_UDP":         image.ReplyUDP, "REPLY_TCP": image.ReplyTCP,
			"LIFE_REPLY_TCP_SYN": int(image.ReplyLife[1]), "LIFE_REPLY_TCP_OPEN": int(image.ReplyLife[3]),
			"LIFE_REPLY_TCP_CLOSED": int(image.ReplyLife[6]), "LIFE_REPLY_UDP_NEW": int(image.ReplyLife[8]),
			"LIFE_REPLY_UDP_OPEN": int(image.ReplyLife[9]), "LIFE_REPLY_ECHO": int(image.ReplyLife[10]), "LIFE_REPLY_BARE_NEW": int(image.ReplyLife[11])},
		"protect.h": {"DSCP_SERVER": plan.ServerDSCP},
		"flood.h": {"ACTIVE_TIME": image.ActiveTime, "ACTIVE_RENEW": image.ActiveRenew, "CLIENT_SHARE": ir.KnownShare,
			"MAX_FLOODS": image.MaxFloods},
		"connlookup.h": {"ASK_STRANGER": image.AskStranger, "ASK_INTERVAL": image.AskInterval, "ASK_BURST": image.AskBurst},
		"sample.h":     {"SAMPLE_LEAVES": image.Leaves, "SAMPLE_JOINED_SHIFT": image.JoinedShift},
		"clock.h":      {"TICK_BITS": image.TickBits},
		"cookie.h": {"SLOT_SHIFT": image.CookieSlot, "SENT_NOTES": image.SentNotes, "SENT_EVER": image.SentEver,
			"SENT_SLOTS": image.SentSlots},
		"verify.h":  {"MAX_SECRETS": 2, "GUARD_LIMIT": 1, "GUARD_OBSERVE": 2},
		"dynamic.h": {"MAX_DYNAMIC_SETS": image.MaxDynamicSets, "LENGTH_BLOCKS": addrs.LengthsBlocks / 2, "LENGTH_WORDS": addrs.LengthsBlockBytes / 8},
		"limit.h":   {"LIMIT_SLOTS": image.LimitSlots, "AMOUNT_BITS": image.LimitFraction, "TIME_BITS": 40, "DEBT_BITS": 38},
		"packet.h": {"PORT_UDP": packet.PortUDP, "PORT_NONE": packet.PortNone, "FLAGS_NONE": packet.FlagsNone,
			"ICMP_V6": packet.ICMPv6, "ICMP_NONE": packet.ICMPNone, "VLAN_NONE": packet.VLANNone,
			"DNS_RESPONSE": packet.DNSResponse, "DNS_OTHER": packet.DNSOther, "DNS_MALFORMED": packet.DNSMalformed,
			"DNS_NONE":      packet.DNSNone,
			"FRAGMENT_NONE": packet.FragmentNone, "FRAGMENT_FIRST": packet.FragmentFirst,
			"FRAGMENT_LATER": packet.FragmentLater, "KIND_NOT_IP": int(packet.NotIP),
			"KIND_MALFORMED": int(packet.Malformed), "KIND_IP": int(packet.IP)},
	} {
		values := constants(t, file)
		for name, v := range want {
			if got, ok := values[name]; !ok || got != v {
				t.Errorf("%s: %s is %d (there: %t), want %d", file, name, got, ok, v)
			}
		}
	}
}

func TestDecision(t *testing.T) {
	for _, slot := range []uint32{0, image.SlotDefault, 64, 10_063, 1<<24 - 1} {
		for _, verdict := range []ir.Verdict{ir.Pass, ir.Drop, ir.Reject, ir.Truncate} {
			for _, flags := range []uint8{0, image.Special, image.Protected} {
				s, v := image.SlotAndVerdict(image.Decision(slot, uint8(verdict)|flags))
				if s != slot || v != uint8(verdict) {
					t.Errorf("slot %d, verdict %s with flags %#x come back as %d, %d", slot, verdict, flags, s, v)
				}
			}
		}
	}
}
