// SPDX-License-Identifier: Apache-2.0

package doctor

// percent returns part as a percentage of whole. It rounds down, so that 100 means all of it. It returns 0 if whole is 0.
func percent(part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	return uint64(float64(part) / float64(whole) * 100)
}
