# PowerShell completion for qlock. Load it with: qlock completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName qlock -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.StartOffset -lt $cursorPosition } | ForEach-Object { $_.Extent.Text })
    if ($wordToComplete -eq '') {
        # Before 7.3, PowerShell drops an empty argument unless it is quoted.
        $words += if ($PSVersionTable.PSVersion -lt [version]'7.3') { '""' } else { '' }
    }
    & $commandAst.CommandElements[0].Extent.Text complete -- @words 2>$null | ForEach-Object {
        $text = if ($_ -match '[^\w./:=,@%+-]') { "'" + $_.Replace("'", "''") + "'" } else { $_ }
        [System.Management.Automation.CompletionResult]::new($text, $_, 'ParameterValue', $_)
    }
}
