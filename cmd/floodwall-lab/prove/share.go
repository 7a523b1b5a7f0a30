// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
)

// Share contains the number of frames of a kind, and the number of those that the entry decides alone, passes to the protection of a service, or
// answers. The proof shows that such a frame is passed on, but not what the protection does. The entry leaves all other frames to general().
type Share struct {
	Kind    string `json:"kind"`
	Frames  int    `json:"frames"`
	Decided int    `json:"decided"`
	Handed  int    `json:"handed"`
}

// Shares counts frames by the formulas of a proof. It assumes a fresh state: no address is banned, no packet is a reply, there is no flood, and no
// limit is exceeded.
type Shares struct {
	subject *Subject
	queries map[kind]*query
	counts  map[kind]*Share
	others  Share
}

// Shares returns a counter without frames.
func (s *Subject) Shares() *Shares {
	return &Shares{subject: s, queries: map[kind]*query{}, counts: map[kind]*Share{}, others: Share{Kind: "all other frames"}}
}

// Add counts a frame. It returns an error if the code cannot be turned into a formula.
func (sh *Shares) Add(frame []byte) error {
	k, ok := kindOf(frame)
	if !ok {
		sh.others.Frames++
		return nil
	}
	q := sh.queries[k]
	if q == nil {
		var err error
		if q, err = sh.subject.query(k, sh.subject.entry); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		sh.queries[k], sh.counts[k] = q, &Share{Kind: k.String()}
	}
	sh.counts[k].Frames++
	m := sh.subject.modelOf(k, frame)
	m.Vars[synAnswered] = 1 // a protection decides the frames that it gets
	switch {
	case m.Eval(q.handed) == 1:
		sh.counts[k].Handed++
	case m.Eval(q.decided) == 1:
		sh.counts[k].Decided++
	}
	return nil
}

// List returns the counts by kind. Kinds without frames are omitted.
func (sh *Shares) List() (list []Share) {
	for _, k := range kinds() {
		if c := sh.counts[k]; c != nil {
			list = append(list, *c)
		}
	}
	if sh.others.Frames > 0 {
		list = append(list, sh.others)
	}
	return list
}

// kindOf returns the kind of a frame; false if the frame is not of a usual kind.
func kindOf(frame []byte) (kind, bool) {
	c := smt.New()
	for _, k := range kinds() {
		is := true
		for at, t := range k.known(c) {
			v, fixed := t.IsConst()
			is = is && at < len(frame) && (fixed && uint64(frame[at]) == v || !fixed && frame[at]>>4 == 6)
		}
		if is {
			return k, true
		}
	}
	return kind{}, false
}

// modelOf returns a model with the bytes of a frame.
func modelOf(frame []byte) *smt.Model {
	m := &smt.Model{Vars: map[string]uint64{"length": uint64(len(frame))}}
	for at, b := range frame {
		m.Vars[byteName(at)] = uint64(b)
	}
	for _, ip := range []int{14, 18} {
		if ip < len(frame) {
			m.Vars[fmt.Sprintf("low%d", ip)] = uint64(frame[ip] & 15)
		}
	}
	return m
}

// modelOf returns a model with the bytes of a frame, the class of the source, and the content of the tables.
func (s *Subject) modelOf(k kind, frame []byte) *smt.Model {
	m, ip := modelOf(frame), k.ip()
	m.Apply = s.readTable
	switch classes := s.world.classes.of(k.v6); {
	case !k.v6 && len(frame) >= ip+20:
		m.Vars["class"] = indexOf(classes, s.world.tables.class4(binary.BigEndian.Uint32(frame[ip+12:])))
	case k.v6 && len(frame) >= ip+40 && len(s.world.tables.lengths6()) > 0:
		source := wide{binary.BigEndian.Uint64(frame[ip+8:]), binary.BigEndian.Uint64(frame[ip+16:])}
		m.Vars["class"] = indexOf(classes, s.world.tables.class6(source))
	}
	return m
}

// readTable returns the value of a function "NAME.SIZE" at an offset. The function means the content of the map NAME, read with a size in bytes,
// before the first packet. Every other function returns 0.
func (s *Subject) readTable(name string, args []uint64) uint64 {
	table, text, _ := strings.Cut(name, ".")
	size, err := strconv.Atoi(text)
	content := s.world.tables.memory[table]
	if err != nil || size > 8 || len(args) != 1 || args[0] > math.MaxInt32 || int(args[0])+size > len(content) {
		return 0
	}
	var word [8]byte
	copy(word[:size], content[args[0]:])
	return binary.LittleEndian.Uint64(word[:])
}

// indexOf returns the index of a class in a list.
func indexOf(list []uint16, class uint16) uint64 {
	for i, c := range list {
		if c == class {
			return uint64(i)
		}
	}
	return 0
}
