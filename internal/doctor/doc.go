// SPDX-License-Identifier: Apache-2.0

// Package doctor finds out why packets are lost or slow on this host. It reads the kernel's counters and settings, the rules of all firewalls, and
// the properties that drivers report. It changes nothing. Each finding has its evidence, its cost, and a remedy. A probe examines one subject. All
// probes run at the same time, and none may take longer than Deadline.
//
//	found, err := doctor.Examine(ctx, doctor.Options{Instance: instance, Devices: devices})
//	fmt.Print(doctor.Text(found, false)) // only findings that are not OK
package doctor
