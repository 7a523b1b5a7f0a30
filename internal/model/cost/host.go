// SPDX-License-Identifier: Apache-2.0

package cost

// ThisHost identifies the host that this process runs on.
func ThisHost() (Host, error) {
	release, version, err := Kernel()
	if err != nil {
		return Host{}, err
	}
	cpus, err := ReadCPUs()
	if err != nil {
		return Host{}, err
	}
	return Host{
		Kernel: release + " " + version, CPU: cpus.Model, Cores: cpus.Online, Mitigations: MitigationsText(Mitigations()),
	}, nil
}
