// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// protectionLine returns a line of text about the protection of a service.
func (p *Program) protectionLine(s *Protection) string {
	words := []string{"protection " + s.Service + ":", Match{packet.DPort, s.Ports}.values(), s.Mode()}
	if s.Always {
		words = append(words, "always")
	} else {
		words = append(words, "start="+p.LimitText(s.Start), "stop="+p.LimitText(s.Stop))
	}
	for _, limit := range s.Limits {
		words = append(words, "limit="+p.LimitText(limit))
	}
	if s.MSS > 0 {
		words = append(words, fmt.Sprintf("mss=%d", s.MSS))
	}
	if s.WScale >= 0 {
		words = append(words, fmt.Sprintf("wscale=%d", s.WScale))
	}
	words = append(words, fmt.Sprintf("flows=%d", s.Flows))
	for _, b := range s.Backends {
		words = append(words, fmt.Sprintf("backend=%s", b))
	}
	return strings.Join(words, " ")
}
