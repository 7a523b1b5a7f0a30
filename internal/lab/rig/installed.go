package rig

import (
	"fmt"
)

// SetUp installs what a row is of. missing says which tool the host lacks for it; "": none.
func (s *Session) SetUp(label string, install func() error) (missing string, err error) {
	s.Steps.Show("installing %s", label)
	if missing, err = Tolerate(install()); err != nil {
		return "", fmt.Errorf("%s: %w", label, err)
	}
	return missing, nil
}

// Installed adds a row for what a tool of the system installs at a site of its own.
func (b *Builder) Installed(name, label string, install func(*Site) error) error {
	if !b.Wants(name) {
		return nil
	}
	at, err := b.NewSite()
	if err != nil {
		return err
	}
	missing, err := b.SetUp(label, func() error { return install(at) })
	if err != nil {
		return err
	}
	b.Add(&Rate{Name: name, Label: label, Subject: Subject{Site: at}, Missing: missing})
	return nil
}
