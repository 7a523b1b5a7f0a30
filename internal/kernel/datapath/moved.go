// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// Move is the last change of a device's mode, and what it did to the device.
type Move struct {
	Mode    Mode      `json:"mode"` // the new mode
	At      time.Time `json:"at"`
	Why     string    `json:"why"`
	Took    float64   `json:"took_ms"`
	Lost    uint64    `json:"lost"`              // packets that found no place in the device's receive ring meanwhile
	Carrier bool      `json:"carrier,omitempty"` // whether the device lost its carrier meanwhile
	Changed []string  `json:"changed,omitempty"` // offloads and numbers of queues that the driver changed, such as "rx-gro-hw off"
	Refused string    `json:"refused,omitempty"` // why the device did not change its mode since, when it should have
	Stays   string    `json:"stays,omitempty"`   // why the device stays in native mode once it is there; "": it may leave
}

// mostTime is the longest time that a change of the mode may take. A device that takes longer, or that loses its carrier, would lose more by each
// change than it gains.
const mostTime = time.Second

// measured does a change of the mode of a device, and sets d.Move.
func (d *Device) measured(dev netlink.Link, change func() error) error {
	var m Move
	index, name := dev.Attrs().Index, dev.Attrs().Name
	before, noStatistics := features.StatisticsOf(index)
	had := setup(name)
	m.At = time.Now()
	if err := change(); err != nil {
		return err
	}
	took := time.Since(m.At)
	m.Took = float64(took.Microseconds()) / 1000
	if after, err := features.StatisticsOf(index); err == nil && noStatistics == nil {
		m.Lost, m.Carrier = after.Missed-min(after.Missed, before.Missed), after.Carrier != before.Carrier
	}
	has := setup(name)
	for _, what := range slices.Sorted(maps.Keys(has)) {
		if old, known := had[what]; known && old != has[what] {
			m.Changed = append(m.Changed, what+" "+has[what])
		}
	}
	switch {
	case m.Carrier:
		m.Stays = "the device lost its carrier when the mode changed"
	case took > mostTime:
		m.Stays = fmt.Sprintf("the change took %.1f s", took.Seconds())
	}
	m.Mode, d.Move = d.Mode, &m
	return nil
}

// setup returns the offloads and the numbers of queues of a device. It leaves out those that the driver does not tell.
func setup(device string) map[string]string {
	now := map[string]string{}
	c, err := features.Open()
	if err != nil {
		return now
	}
	defer c.Close()
	offloads, _ := c.Features(device)
	for name, f := range offloads {
		now[name] = map[bool]string{true: "on", false: "off"}[f.On]
	}
	if q, err := c.Channels(device); err == nil {
		now["queues"] = fmt.Sprintf("%d rx, %d tx, %d combined", q.RX, q.TX, q.Combined)
	}
	return now
}

// String describes the change, without its reason.
func (m *Move) String() string {
	text := fmt.Sprintf("in %.0f ms", max(m.Took, 1))
	if m.Lost > 0 {
		text += fmt.Sprintf(", %d packets lost in the receive ring", m.Lost)
	}
	if m.Changed != nil {
		text += fmt.Sprintf(", the driver changed %d settings of the device", len(m.Changed))
	}
	switch {
	case m.Stays == "":
	case m.Mode == Native:
		text += ", and it stays so: " + m.Stays
	default:
		text += ", and the next flood moves it for good: " + m.Stays
	}
	return text
}
