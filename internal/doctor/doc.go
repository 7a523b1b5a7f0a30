// Package doctor finds out what on this host costs packets. It reads the kernel's counters and settings, the rules of
// all firewalls, and what the drivers say, and changes nothing. Each finding has its evidence, what it costs, and a
// remedy. A probe looks at one thing; all of them run at once, and none longer than Deadline.
//
//	found, err := doctor.Examine(ctx, doctor.Options{Instance: instance, Devices: devices})
//	fmt.Print(doctor.Text(found, false)) // those that ask for a remedy
package doctor
