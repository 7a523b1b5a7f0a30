// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"strings"
	"time"
)

// LimitText returns a limit in the notation of the policy. number is its index in Program.Limits.
func (p *Program) LimitText(number int) string {
	l := &p.Limits[number]
	parts := []string{"rate: " + l.amount(l.Rate) + "/" + timeUnits[l.Per]}
	if per := prefixWords(l.Src, l.Dst); per != nil {
		parts = append(parts, "per: "+strings.Join(per, "+"))
	}
	parts = append(parts, "burst: "+l.amount(l.Burst))
	if l.Max > 0 {
		parts = append(parts, fmt.Sprintf("max: %d", l.Max))
	}
	if l.Ban != nil {
		trust := ""
		if l.Ban.Forgeable {
			trust = ", trust: forgeable"
		}
		parts = append(parts, fmt.Sprintf("ban: {for: %s, set: %s%s}", l.Ban.For, p.Sets[l.Ban.Set].Name, trust))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

var timeUnits = map[time.Duration]string{time.Second: "s", time.Minute: "min", time.Hour: "h", 24 * time.Hour: "day"}

// amount returns a number of packets or bits as text. For bits it uses the largest unit that divides n.
func (l *Limit) amount(n uint64) string {
	if !l.Bits {
		return fmt.Sprint(n)
	}
	unit := 0
	for n > 0 && n%1000 == 0 && unit < 3 {
		n /= 1000
		unit++
	}
	return fmt.Sprint(n) + [...]string{"bit", "kbit", "mbit", "gbit"}[unit]
}

// String returns a number of connections in the notation of the policy.
func (c *ConnLimit) String() string {
	text := fmt.Sprintf("{connections: %d, per: %s", c.Most, strings.Join(prefixWords(c.Src, c.Dst), "+"))
	if c.Max > 0 {
		text += fmt.Sprintf(", max: %d", c.Max)
	}
	return text + "}"
}

func prefixWords(src, dst *Prefixes) (words []string) {
	if src != nil {
		words = append(words, fmt.Sprintf("from/%d/%d", src.V4, src.V6))
	}
	if dst != nil {
		words = append(words, fmt.Sprintf("to/%d/%d", dst.V4, dst.V6))
	}
	return words
}
