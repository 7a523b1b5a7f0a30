// Package experiment measures what dropping packets costs: Floodwall, the limits that no program can pass, and the tools
// that do the same job. Everything happens in the namespaces of a lab; nothing outside of them is touched or left.
//
// It has the experiments, each in the file of its name (experiment.go has the list), and the calibration. They stand on
// package rig: hosts and cables, programs of the system and of others to compare with, and lists that firewalls are filled with.
// What they find goes into a report of package report.
//
//	r, err := experiment.Run(ctx, []string{"drop"}, rig.Options{Quick: true})
//	err = r.WriteTables(os.Stdout, false)
package experiment
