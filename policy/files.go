// SPDX-License-Identifier: Apache-2.0

package policy

import "fmt"

// FileRef is a place in a policy that names a file.
type FileRef struct {
	Pos  Pos
	What string  // names the part of the policy that refers to the file, for messages: set "blocked"
	Name *string // points to the name in the policy: an assignment changes the policy
}

// Files lists all files that the policy names, in the order of the policy's fields. Their content is part of the
// policy's meaning, so a copy of the policy needs copies of them, too.
func (p *Policy) Files() (list []FileRef) {
	add := func(at Pos, name *string, format string, args ...any) {
		if *name != "" {
			list = append(list, FileRef{at, fmt.Sprintf(format, args...), name})
		}
	}
	for i := range p.Sets {
		add(p.Sets[i].Pos, &p.Sets[i].File, "set %q", p.Sets[i].Name)
		if g := p.Sets[i].Geo; g != nil {
			add(p.Sets[i].Pos, &g.DB, "set %q", p.Sets[i].Name)
		}
	}
	for i := range p.Names {
		add(p.Names[i].Pos, &p.Names[i].File, "set %q", p.Names[i].Name)
	}
	for i := range p.Services {
		if g := p.Services[i].Guard; g != nil {
			add(p.Services[i].Pos, &g.Secret, "service %q", p.Services[i].Name)
		}
	}
	return list
}
