"""The claims of the SSCA papers [ye2022sample], [ye2021sample] on rows."""
