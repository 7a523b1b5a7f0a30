// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/host/exposed"
)

// mostPorts is how many closed ports have a line of their own. A host with more has a policy that is not about single ports.
const mostPorts = 4

// portLines says which ports listen and are closed, a line each, and in one line which ports are open while nothing listens.
func portLines(ports []exposed.Port) (lines []string) {
	closed := 0
	var unused []string
	for _, p := range ports {
		switch {
		case !p.Closed:
			unused = append(unused, p.Port)
		case closed < mostPorts:
			lines = append(lines, p.Text)
			fallthrough
		default:
			closed++
		}
	}
	if closed > mostPorts {
		lines = append(lines, fmt.Sprintf("%d more listen and are closed: `floodwall status --json` names them", closed-mostPorts))
	}
	if more := len(unused) - 2*mostPorts; more > 0 {
		unused = append(unused[:2*mostPorts], fmt.Sprintf("%d more", more))
	}
	if unused != nil {
		lines = append(lines, "open, and nothing listens there: "+strings.Join(unused, ", "))
	}
	return lines
}
