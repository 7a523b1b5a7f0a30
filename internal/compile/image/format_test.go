// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// handedOn has the maps that another version of floodwall may read. It does not have maps that only user space creates.
var handedOn = []string{
	Counters, Verified, Flows, FlowFilter, CookiesSent, SynKeys, ProtectionStates, HostEnds, DynamicInfo, Dynamic, Limits, LimitInfos, Evictions, Offences, Samples, Samplers,
	ReplyFlows, ReplyFilter, Services, FloodStates, GameAnswers, RakNetServers, AnsweredNames, FloodedZones, ZoneTimes,
}

// TestFormats compares the types of map contents with knownFormats. A map that differs needs a new number in formats, and a new line here, so that
// one version does not misread the generations of another. The number may stay if only names or comments changed.
func TestFormats(t *testing.T) {
	spec := Load()
	var lines []string
	for _, name := range handedOn {
		m := spec.Maps[name]
		if m == nil {
			t.Errorf("there is no map %s", name)
			continue
		}
		h := fnv.New32a()
		fmt.Fprintf(h, "%v %d %d ", m.Type, m.KeySize, m.Flags)
		if m.Type != ebpf.RingBuf && m.Value != nil {
			io.WriteString(h, form(m.Value, 0))
		}
		lines = append(lines, fmt.Sprintf("%s %d %08x", name, Format(name), h.Sum32()))
	}
	lines = append(lines, fmt.Sprintf("slots %d %d", Format(Counters), packet.NumChecks))
	want := strings.Split(strings.TrimSpace(knownFormats), "\n")
	for _, line := range lines {
		if !slices.Contains(want, line) {
			t.Errorf("%s is not what formats_test.go notes of it: give it a new number in format.go, and note this line", line)
		}
	}
}

// form returns a type as text, with all types that it contains.
func form(t btf.Type, depth int) string {
	if depth > 8 {
		return "..."
	}
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		var b strings.Builder
		for _, m := range t.Members {
			fmt.Fprintf(&b, "%s@%d:%s;", m.Name, m.Offset, form(m.Type, depth+1))
		}
		return "{" + b.String() + "}"
	case *btf.Datasec:
		var b strings.Builder
		for _, v := range t.Vars {
			fmt.Fprintf(&b, "@%d:%s;", v.Offset, form(v.Type.(*btf.Var).Type, depth+1))
		}
		return "{" + b.String() + "}"
	case *btf.Array:
		return fmt.Sprintf("[%d]%s", t.Nelems, form(t.Type, depth+1))
	case *btf.Int:
		return fmt.Sprintf("int%d", t.Size)
	default:
		return fmt.Sprintf("%T", t)
	}
}

// knownFormats has a line for each map: its number, and a hash of its kind and of the types of its keys and values.
const knownFormats = `
counters 1 80924ce2
verified 1 d7f3d1f4
flows 3 9ffea29c
.data.flowbits 1 20b469d8
.data.cookies 1 f53966fb
.data.ends 2 a9b805d2
.data.syn_keys 1 2f48b0c1
protection_states 1 1ddc0c9d
.data.dynamic 5 c62d85dd
dynamic 1 d9b6a971
limits 1 029ac456
limit_info 1 a729d565
evictions 1 bc719d4e
offences 1 0e56ae1c
samples 2 0e56ae1c
samplers 2 47fd42a9
.data.floods 2 bf98dcb4
.data.replied 4 aa185620
.data.replies 4 154ab345
.data.services 1 7171248a
game_answers 1 a55605d6
raknet_servers 2 b8e1dc17
answered_names 1 9ffea29c
flooded_zones 1 ee223007
.data.zones 1 fdbf5e75
slots 1 34
`
